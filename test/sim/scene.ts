/**
 * What all parts of a simulated world share: its options, its time and chance, and the first thing that was wrong in it.
 *
 * L4: a run takes a bounded number of steps: nothing goes round in circles.
 */
import { Simulation } from "../../runtime/sim/simulation.ts";
import type { SimOptions } from "./options.ts";

/** A run takes some thousand steps for each virtual minute; one that takes so many goes round in circles. */
const stepsMax = 200_000;
/** After what time a supervisor starts a process anew that has ended itself, in milliseconds. */
export const supervisorMs = 1_000;
/** How often somebody looks whether a manager that was demoted, or a node that could not join, is to be started again. */
export const operatorMs = 2_000;

export class Scene {
  readonly options: SimOptions;
  readonly simulation: Simulation;
  /** Processes that were shown a damaged record in their present life: those that end have found it. */
  readonly shownDamage = new Set<string>();
  readonly #stepsMax: number;
  #failure: string | null = null;

  /** `steps`: how many it takes at most. */
  constructor(options: SimOptions, keepTrace: boolean, steps = stepsMax) {
    this.options = options;
    this.#stepsMax = steps;
    this.simulation = new Simulation({ seed: options.seed, keepTrace });
    this.simulation.nats.onDamaged = (name) => this.shownDamage.add(name);
  }

  /** What was violated, in one sentence; null while everything holds. */
  get failure(): string | null {
    return this.#failure;
  }

  /** The log has lost what it had acknowledged: two histories share version numbers, and nodes run what nobody knows of. */
  get isTailLost(): boolean {
    return (this.simulation.trace.marks.get("log.tail.lost") ?? 0) > 0;
  }

  demand(name: string, claim: string | null): void {
    if (claim !== null) this.fail(`${claim} (on ${name})`);
  }

  fail(reason: string): void {
    if (this.#failure !== null) return;
    this.#failure = reason;
    this.simulation.trace.write("world", `FAILED ${reason}`);
    this.simulation.clock.stop();
  }

  /** A process that ends itself has found a broken invariant. Only a log that is damaged, or lost what it had acknowledged, excuses that. */
  processFailed(name: string, reason: string, error: unknown, startAnew: () => void): void {
    const { clock, trace } = this.simulation;
    if (this.shownDamage.delete(name)) {
      trace.mark("replica.stopped.at.damage");
      clock.schedule(startAnew, supervisorMs, null);
      return undefined;
    }
    if (!this.isTailLost) return this.fail(`P3: ${name} ended itself in ${reason}: ${sentence(error)}`);
    trace.mark("replica.stopped.at.break");
    clock.schedule(startAnew, supervisorMs, null);
    return undefined;
  }

  /** Runs for `ms` of virtual time, or until `until` or a failure. */
  async runUntil(until: () => boolean, ms: number): Promise<void> {
    const { clock } = this.simulation;
    if (this.#failure !== null) return;
    const end = await clock.run({ untilMs: clock.now() + ms, until, maxSteps: this.#stepsMax - clock.steps });
    if (end === "steps") this.fail(`L4: ${this.#stepsMax} steps were not enough`);
  }
}

export function sentence(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const [, at = ""] = (error.stack ?? "").split("\n");
  return `${error.name}: ${error.message} ${at.trim()}`;
}
