/**
 * Sends one node's output for one subscription to the subscription's home: in batches, one at a time, each repeated until its
 * outcome is certain. Bypasses the statecharts: output is bytes.
 *
 * Stages: open → ending (its end is in transit) → over.
 *
 * LO1: lines keep their order, and each is accepted at most once, whatever the bus loses or repeats.
 * LO2: at most `batchBytesMax` wait besides the current batch; a caller that pushes more waits, and so does the node (flow
 *      control).
 */
import { linesWithin } from "../../machines/logs/publish.ts";
import { LogDelivery, LogDeliveryAnswer_Verdict as Verdict } from "../../proto/gen/messages.ts";
import { joinedLines, type LogLines } from "../../proto/log-lines.ts";
import { type Backoff, backoffMs } from "../../lib/backoff.ts";
import type { Clock } from "../../runtime/ports/index.ts";

/** A quarter of NATS's default `max_payload`: leaves space for headers, and allows 1 GB/s at 0.26 ms a request. */
const batchBytesMax = 256 * 1024;
/** Between probes whether a follower has read; without jitter, since each outlet probes its own follower. */
const probeBackoff: Backoff = { stepMs: 10, msMax: 500 };
/** Delay after a delivery with an unknown outcome, in milliseconds. */
const unsureMs = 200;

/** `unsure`: it may have been accepted; repeating it is harmless. */
export type Fate = "taken" | "full" | "gone" | "unsure";

export const fateOf: Readonly<Record<Verdict, Fate>> = {
  [Verdict.TAKEN]: "taken",
  [Verdict.FULL]: "full",
  [Verdict.GONE]: "gone",
};

interface OutletOptions {
  readonly clock: Clock;
  readonly subscriptionId: string;
  readonly nodeId: string;
  readonly attempt: number;
  readonly holder: string;
  readonly streamId: string;
  readonly deliver: (delivery: LogDelivery) => Fate | Promise<Fate>;
  /** Called at each probe while the follower does not read. */
  readonly onStalled: (outlet: LogOutlet) => void;
}

export class LogOutlet {
  readonly #options: OutletOptions;
  /** Each fits a batch. */
  #pending: LogLines[] = [];
  #pendingBytes = 0;
  #number = 0;
  #running: Promise<void> | null = null;
  #ending: Promise<void> | null = null;
  #room: (() => void) | null = null;
  #isGone = false;
  #isCut = false;
  /** When the follower ran out of space; null while it has space. Milliseconds since the epoch. */
  stalledSince: number | null = null;

  constructor(options: OutletOptions) {
    this.#options = options;
  }

  get attempt(): number {
    return this.#options.attempt;
  }

  get isGone(): boolean {
    return this.#isGone || this.#isCut;
  }

  /** Null when more may be pushed at once; otherwise resolves when it may. LO2 */
  push(lines: LogLines): Promise<void> | null {
    if (this.isGone || lines.length === 0) return null;
    this.#pending.push(...linesWithin(lines, batchBytesMax));
    this.#pendingBytes += lines.length;
    this.#running ??= this.#run();
    if (this.#pendingBytes < batchBytesMax) return null;
    return new Promise((resolve) => (this.#room = resolve));
  }

  /**
   * Sends waiting lines, then the end with why the output is incomplete (empty: complete). Never rejects; the first call
   * counts.
   */
  end(error: string): Promise<void> {
    this.#ending ??= this.#end(error);
    return this.#ending;
  }

  async #end(error: string): Promise<void> {
    await this.#running;
    if (this.#isGone) return;
    const end = this.#delivery({ number: (this.#number += 1), end: true, error, slow: this.#isCut });
    await this.#send(end);
    this.forget();
  }

  /** The follower blocks too much: waiting lines are dropped, and the home is notified. */
  cut(): void {
    this.#isCut = true;
    this.#drop();
    void this.end("");
  }

  /** The subscription is over. */
  forget(): void {
    this.#isGone = true;
    this.#drop();
  }

  #drop(): void {
    this.#pending = [];
    this.#pendingBytes = 0;
    this.stalledSince = null;
    this.#wake();
  }

  #wake(): void {
    const room = this.#room;
    this.#room = null;
    room?.();
  }

  async #run(): Promise<void> {
    // Lines that arrive together are sent together.
    await new Promise<void>((resolve) => this.#options.clock.soon(resolve));
    while (this.#pending.length > 0 && !this.isGone) {
      const lines = this.#takeBatch();
      this.#wake();
      const fate = await this.#send(this.#delivery({ number: (this.#number += 1), lines }));
      if (fate === "gone" && !this.#isCut) this.forget();
    }
    this.#running = null;
  }

  #takeBatch(): LogLines {
    let bytes = 0;
    let count = 0;
    for (const part of this.#pending) {
      if (count > 0 && bytes + part.length > batchBytesMax) break;
      bytes += part.length;
      count += 1;
    }
    const batch = this.#pending.splice(0, count);
    this.#pendingBytes = this.#pending.reduce((sum, part) => sum + part.length, 0);
    return joinedLines(batch);
  }

  /** LO1 */
  async #send(delivery: LogDelivery): Promise<"taken" | "gone"> {
    const { clock, deliver, onStalled } = this.#options;
    const probe = this.#delivery({ probe: true });
    let next = delivery;
    let refusals = 0;
    for (;;) {
      const fate = await deliver(next);
      if (fate === "gone") return "gone";
      if (fate === "taken") {
        this.stalledSince = null;
        refusals = 0;
        if (next === delivery) return "taken";
        next = delivery;
        continue;
      }
      if (fate === "full") {
        refusals += 1;
        this.stalledSince ??= clock.monotonic();
        next = probe;
        onStalled(this);
      }
      const waitMs = fate === "unsure" ? unsureMs : backoffMs(probeBackoff, refusals);
      await new Promise<void>((resolve) => clock.setTimeout(resolve, waitMs));
      if (this.#isGone || (this.#isCut && !delivery.end)) return "gone";
    }
  }

  #delivery(fields: Partial<LogDelivery>): LogDelivery {
    const { attempt, holder, nodeId, streamId, subscriptionId } = this.#options;
    return LogDelivery.create({ subscriptionId, nodeId, attempt, holder, streamId, ...fields });
  }
}
