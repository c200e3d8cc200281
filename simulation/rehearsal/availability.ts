/** How many tasks of each service were wanted and ran, over time. */
import type { ServiceOutcome } from "./outcome.ts";

type Series = Pick<ServiceOutcome, "replicas" | "availabilityMin" | "fullShare" | "firstFullMs">;

interface Sample {
  readonly atMs: number;
  readonly wanted: number;
  readonly running: number;
}

/** One service. Times are in milliseconds of simulated time. */
export class Availability {
  readonly #createdMs: number;
  readonly #samples: Sample[] = [];
  #wanted = 0;
  #running = 0;
  #fullMs: number | null = null;

  constructor(createdMs: number) {
    this.#createdMs = createdMs;
  }

  get isFull(): boolean {
    return this.#running >= this.#wanted;
  }

  want(wanted: number, atMs: number): void {
    if (wanted === this.#wanted) return;
    this.#wanted = wanted;
    this.#changed(atMs);
  }

  /** The number of running tasks has changed by this much. */
  run(change: number, atMs: number): void {
    this.#running += change;
    this.#changed(atMs);
  }

  /** `began` and `endMs`: begin of the scenario, and length of its run. */
  outcome(began: number, endMs: number): Series {
    // States before the scenario count as one at its beginning.
    const first = this.#samples.findLastIndex(({ atMs }) => atMs <= began);
    const replicas = this.#samples
      .slice(Math.max(0, first))
      .map((sample) => ({ ...sample, atMs: Math.round(Math.max(0, sample.atMs - began)) }));
    const fullMs = this.#fullMs === null ? null : this.#fullMs - began;
    if (fullMs === null) return { replicas, availabilityMin: this.#hasWanted ? 0 : 1, fullShare: 0, firstFullMs: null };
    let availabilityMin = 1;
    // Wanted tasks, without those that were asked for since all of them last ran: an addition is not an outage.
    let due = 0;
    let [heldMs, totalMs] = [0, 0];
    for (const [at, { atMs, running, wanted }] of replicas.entries()) {
      const ms = Math.min(endMs, replicas[at + 1]?.atMs ?? endMs) - Math.max(atMs, fullMs);
      due = running >= wanted ? wanted : Math.min(due, wanted);
      if (wanted === 0 || ms <= 0) continue;
      if (due > 0) availabilityMin = Math.min(availabilityMin, running / due);
      totalMs += ms;
      if (running >= wanted) heldMs += ms;
    }
    return {
      replicas,
      availabilityMin,
      fullShare: totalMs === 0 ? 1 : heldMs / totalMs,
      firstFullMs: Math.round(fullMs + began - this.#createdMs),
    };
  }

  get #hasWanted(): boolean {
    return this.#samples.some(({ wanted }) => wanted > 0);
  }

  #changed(atMs: number): void {
    const sample = { atMs, wanted: this.#wanted, running: this.#running };
    if (this.#samples.at(-1)?.atMs === sample.atMs) this.#samples.pop();
    this.#samples.push(sample);
    if (this.#wanted > 0 && this.isFull) this.#fullMs ??= atMs;
  }
}
