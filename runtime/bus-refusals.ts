/** Dropped bus messages: counted by subject and reason, and logged at a bounded rate. */
import type { Clock, Telemetry } from "./ports/index.ts";
import { subjectKind } from "./subjects.ts";

/**
 * `unsealed`: not a sealed message. `unknown key`, `old key`: sealed, but not under a key in use here. `forged`: does not
 * open. `replayed`: already received, or older than its sender's proof of life. `unproven`: its sender does not prove that it
 * is alive. `newer format`: of a version that this one does not know. `too large`: above the size limit. `malformed`: opens, but is not a message of its subject.
 */
type BusRefusal =
  | "unsealed"
  | "unknown key"
  | "old key"
  | "forged"
  | "replayed"
  | "unproven"
  | "newer format"
  | "too large"
  | "malformed";

/** Milliseconds between two log lines for the same subject and reason; drops in between are only counted. */
const logEveryMs = 10_000;

const known = new WeakMap<Telemetry, BusRefusals>();

export class BusRefusals {
  /** One instance per process, so that its log has one rate. */
  static of(telemetry: Telemetry, clock: Clock): BusRefusals {
    let refusals = known.get(telemetry);
    if (refusals === undefined) known.set(telemetry, (refusals = new BusRefusals(telemetry, clock)));
    return refusals;
  }

  readonly #telemetry: Telemetry;
  readonly #clock: Clock;
  readonly #counter;
  /** By kind of subject and reason: few keys. */
  readonly #logged = new Map<string, { atMs: number; since: number }>();

  private constructor(telemetry: Telemetry, clock: Clock) {
    this.#telemetry = telemetry;
    this.#clock = clock;
    this.#counter = telemetry.metrics.counter(
      "muster_bus_refused_total",
      "Messages from other managers, or from strangers, that were dropped.",
    );
  }

  add(subject: string, reason: BusRefusal, detail = ""): void {
    const kind = subjectKind(subject) ?? "unknown";
    this.#counter.add(1, { subject: kind, reason });
    const nowMs = this.#clock.monotonic();
    const key = `${kind} ${reason}`;
    const before = this.#logged.get(key);
    if (before !== undefined && nowMs - before.atMs < logEveryMs) {
      before.since += 1;
      return;
    }
    this.#logged.set(key, { atMs: nowMs, since: 0 });
    const more = before?.since ?? 0;
    this.#telemetry.log.warn({ subject, reason, detail, more }, "message on the bus dropped");
  }
}
