/**
 * Shared state of all parts of a simulated world: its options, time and randomness, and the first violation.
 *
 * L4: a run takes a bounded number of steps: there are no infinite loops.
 */
import { recordedBytesMax } from "../runtime/sim/recorded-lives.ts";
import { Simulation } from "../runtime/sim/simulation.ts";
import type { SimOptions } from "./options.ts";
import { SimRecording } from "./recording.ts";
import { collectTransitions } from "./transitions.ts";

/** A run takes some thousand steps per virtual minute; beyond this number it is in a loop. */
const stepsMax = 200_000;
/** Delay after which a supervisor restarts a process that exited, in milliseconds. */
export const supervisorMs = 1_000;
/** Interval at which an operator restarts demoted managers and nodes that could not join. */
export const operatorMs = 2_000;

/** Parts of a run to keep besides its result; by default none. */
export interface Keeps {
  /** The lines of the trace. */
  readonly trace?: boolean;
  /** Not even a digest of the trace is kept. */
  readonly dropTrace?: boolean;
  readonly spans?: boolean;
  /** The last steps of all actors, log lines and spans, as a recording. */
  readonly recording?: boolean;
  /** The transitions of all charts that were taken. */
  readonly transitions?: boolean;
  /** Maximum compressed bytes of the recording. */
  readonly recordingBytesMax?: number | undefined;
}

export class Scene {
  readonly options: SimOptions;
  readonly simulation: Simulation;
  /** Processes that were shown a damaged record in their current life: if they exit, they have found it. */
  readonly shownDamage = new Set<string>();
  readonly #stepsMax: number;
  /** Null: not kept. */
  readonly recording: SimRecording | null;
  /** By chart and transition: how often it was taken. Empty if not kept. */
  readonly transitions: ReadonlyMap<string, number>;
  #failure: string | null = null;
  #failedAtMs = 0;

  /** `steps`: maximum number of steps. */
  constructor(options: SimOptions, keeps: Keeps, steps = stepsMax) {
    const { dropTrace = false, recording = false, spans = false, trace = false, transitions = false } = keeps;
    const { recordingBytesMax = recordedBytesMax } = keeps;
    this.options = options;
    this.#stepsMax = steps;
    this.simulation = new Simulation({
      seed: options.seed,
      keepTrace: trace,
      keepSpans: spans,
      ringsBytesMax: recording ? recordingBytesMax : null,
      dropTrace,
    });
    this.recording = recording ? new SimRecording(this.simulation) : null;
    this.transitions = transitions ? collectTransitions(this.simulation.trace) : new Map();
    this.simulation.nats.onDamaged = (name) => this.shownDamage.add(name);
  }

  /** The first violation, in one sentence; null while everything holds. */
  get failure(): string | null {
    return this.#failure;
  }

  /** Time of the first violation, on the true clock; 0 while everything holds. */
  get failedAtMs(): number {
    return this.#failedAtMs;
  }

  /** The log lost acknowledged records: two histories share version numbers, and nodes run unknown tasks. */
  get isTailLost(): boolean {
    return (this.simulation.trace.marks.get("log.tail.lost") ?? 0) > 0;
  }

  demand(name: string, claim: string | null): void {
    if (claim !== null) this.fail(`${claim} (on ${name})`);
  }

  fail(reason: string): void {
    if (this.#failure !== null) return;
    this.#failure = reason;
    this.#failedAtMs = this.simulation.clock.now();
    this.simulation.trace.write("world", `FAILED ${reason}`);
    this.simulation.clock.stop();
  }

  /** A process that exits has found a broken invariant, unless its log is damaged or lost acknowledged records. */
  processFailed(name: string, reason: string, error: unknown, startAnew: () => void): void {
    const { clock, trace } = this.simulation;
    if (this.shownDamage.delete(name)) {
      trace.mark("replica.stopped.at.damage");
      clock.schedule(startAnew, supervisorMs, null);
      return undefined;
    }
    if (!this.isTailLost) return this.fail(`P3: ${name} exited in ${reason}: ${sentence(error)}`);
    trace.mark("replica.stopped.at.break");
    clock.schedule(startAnew, supervisorMs, null);
    return undefined;
  }

  /** Runs for `ms` of virtual time, or until `until` or a failure. */
  async runUntil(until: () => boolean, ms: number): Promise<void> {
    const { clock } = this.simulation;
    if (this.#failure !== null) return;
    const end = await clock.run({
      untilMs: clock.now() + ms,
      until,
      maxSteps: this.#stepsMax - clock.steps,
    });
    if (end === "steps") this.fail(`L4: ${this.#stepsMax} steps did not suffice`);
  }
}

export function sentence(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const [, at = ""] = (error.stack ?? "").split("\n");
  return `${error.name}: ${error.message} ${at.trim()}`;
}
