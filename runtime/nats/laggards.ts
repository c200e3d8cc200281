/**
 * Finds servers of a NATS cluster that accept clients but have stopped following the log, so that an operator knows which one
 * to examine. Only the log's leader can tell, since such a server answers nothing itself.
 *
 * B1: a server is reported if the leader has considered it out of date for `laggingMsMin`, has not heard from it meanwhile, and
 *     it still greets. One that catches up is heard from; one that is down does not greet, and counts as down (`BusServers`).
 */
import { callJetStream, type Fields, fieldsField, numberField, textField } from "./jetstream.ts";
import type { Link } from "./link.ts";
import { isLed, logStream, nanos } from "./streams.ts";

/** An idle log's followers respond every second; an election ends within this time. */
const laggingMsMin = 10_000;
const checkMs = 5_000;
const callTimeoutMs = 2_000;

export interface Laggard {
  readonly name: string;
  /** Milliseconds for which it has lagged. */
  readonly ms: number;
}

/** Names of followers that are out of date and that the leader has not heard from for `laggingMsMin`, or ever. */
export function unheardFollowers(info: Fields): readonly string[] {
  const { replicas } = fieldsField(info, "cluster");
  if (!isLed(info) || !Array.isArray(replicas)) return [];
  return (replicas as readonly Fields[]).flatMap((replica) => {
    const active = numberField(replica, "active");
    const isUnheard = active === 0 || active >= nanos(laggingMsMin);
    return replica["current"] !== true && isUnheard ? [textField(replica, "name")] : [];
  });
}

/**
 * `before`: names with the time since when, in monotonic milliseconds. If the log's leader does not answer, nothing changes.
 */
export function laggingSince(
  before: ReadonlyMap<string, number>,
  check: { readonly at: number; readonly unheard: readonly string[] },
): ReadonlyMap<string, number> {
  return new Map(check.unheard.map((name) => [name, before.get(name) ?? check.at]));
}

export class Laggards {
  readonly #link: Link;
  #since: ReadonlyMap<string, number> = new Map();
  #greeting: readonly string[] = [];

  /** Checks until the link is closed; never for a single server, which follows nobody. */
  constructor(link: Link) {
    this.#link = link;
    if (link.named > 1) this.#scheduleCheck();
  }

  all(now: number): readonly Laggard[] {
    return [...this.#since].flatMap(([name, since]) =>
      now - since >= laggingMsMin && this.#greeting.includes(name) ? [{ name, ms: now - since }] : [],
    );
  }

  #scheduleCheck(): void {
    setTimeout(() => void this.#check(), checkMs).unref();
  }

  async #check(): Promise<void> {
    if (this.#link.isClosed()) return;
    const found = await callJetStream(this.#link, `STREAM.INFO.${logStream}`, null, callTimeoutMs);
    if (found.kind === "ok" && isLed(found.body)) {
      this.#since = laggingSince(this.#since, { at: performance.now(), unheard: unheardFollowers(found.body) });
      this.#greeting = this.#since.size === 0 ? [] : await this.#link.greetingNames();
    }
    this.#scheduleCheck();
  }
}
