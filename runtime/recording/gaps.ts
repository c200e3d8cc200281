/** Times in which steps of a process are not known: messages were lost, steps were dropped, or the process could not be watched. */
import { TimelineGap } from "../../proto/gen/messages.ts";

/** Gaps of a process that are closer than this are shown as one: a slow listener loses steps in every flush. Milliseconds. */
const joinMs = 1_000;
/** Number of gaps that are remembered; the two closest of a process would be joined next, so the oldest is forgotten instead. */
const gapsMax = 10_000;

interface Gap {
  readonly process: string;
  readonly fromMs: number;
  toMs: number;
}

export class Gaps {
  #gaps: Gap[] = [];
  /** The gaps of processes that cannot be watched now, by process. */
  readonly #open = new Map<string, Gap>();
  readonly #newest = new Map<string, Gap>();

  add(process: string, fromMs: number, toMs: number): void {
    const newest = this.#newest.get(process);
    if (newest !== undefined && fromMs - newest.toMs <= joinMs) {
      newest.toMs = Math.max(newest.toMs, toMs);
      return;
    }
    this.#append({ process, fromMs, toMs });
  }

  /** From now on nothing of the process is known. */
  open(process: string, fromMs: number): void {
    if (this.#open.has(process)) return;
    this.add(process, fromMs, fromMs);
    const newest = this.#newest.get(process);
    if (newest !== undefined) this.#open.set(process, newest);
  }

  close(process: string, toMs: number): void {
    const gap = this.#open.get(process);
    if (gap === undefined) return;
    this.#open.delete(process);
    gap.toMs = Math.max(gap.toMs, toMs);
  }

  /** Those that overlap the range. An open one lasts until `toMs`. */
  within(fromMs: number, toMs: number): readonly TimelineGap[] {
    const open = new Set(this.#open.values());
    return this.#gaps
      .map((gap) => (open.has(gap) ? { ...gap, toMs: Math.max(gap.toMs, toMs) } : gap))
      .filter((gap) => gap.fromMs <= toMs && gap.toMs >= fromMs)
      .map((gap) => TimelineGap.create(gap));
  }

  forgetBefore(ms: number): void {
    const open = new Set(this.#open.values());
    this.#gaps = this.#gaps.filter((gap) => gap.toMs >= ms || open.has(gap));
  }

  #append(gap: Gap): void {
    this.#gaps.push(gap);
    this.#newest.set(gap.process, gap);
    if (this.#gaps.length > gapsMax) this.#gaps.shift();
  }
}
