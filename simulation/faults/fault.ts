/** A kind of fault: when it is drawn, and what it does. Each kind is a file of this folder, listed in `kinds.ts`. */
import type { SimRandom } from "../../runtime/sim/random.ts";
import type { SimProcess, Simulation } from "../../runtime/sim/simulation.ts";

/** The parts of the world that faults strike, and what they may do to them. */
export interface FaultTargets {
  readonly managers: readonly SimProcess[];
  readonly agents: readonly SimProcess[];
  /** The manager that leads, as far as it knows; null if none does. */
  readonly leader: () => SimProcess | null;
  /** Also ends the runs of the agent's tasks. */
  readonly losePower: (agent: SimProcess) => void;
  /** Managers that are an older version. */
  readonly older: () => readonly SimProcess[];
  /**
   * From its next start on, the manager is an older version, or the current one. `level`: the highest level of the log's format that
   * it knows.
   */
  readonly setVersion: (manager: SimProcess, version: { readonly isOlder: boolean; readonly level: number }) => void;
  /** Whether NATS may lose acknowledged records; an agent whose membership is lost has to join again manually. */
  readonly mayLoseTail: () => boolean;
  /** Whether the machine may break or get an older disk, because the cluster does not depend on it. */
  readonly mayBreak: (process: SimProcess) => boolean;
  /** The disk of an agent's machine was replaced by an older one. */
  readonly diskWentBack: (agent: SimProcess) => void;
}

/** The world of one run, as faults see it. */
export interface FaultWorld extends FaultTargets {
  readonly simulation: Simulation;
  /** Managers, then agents. */
  readonly processes: readonly SimProcess[];
  /** Calls `work` after `ms` of virtual time, unless faults are over by then. */
  readonly later: (ms: number, work: () => void) => void;
  /** Calls `work` every `ms` of virtual time, until faults are over. */
  readonly repeat: (ms: number, work: () => void) => void;
}

/** One fault in one run. */
export interface Strikes {
  /** Something fails now. `random` is this strike's own stream: other strikes and kinds draw the same with or without it. */
  strike(random: SimRandom): void;
  /** Ends what would outlast the faults; everything else is ended for all kinds (`faults.ts`). */
  heal?(): void;
}

/** One strike as data, so that a run can be repeated with some of its strikes. */
export interface Strike {
  readonly kind: string;
  /** Virtual milliseconds since the start of the fault phase. */
  readonly atMs: number;
  /** Selects the strike's random stream: the number of earlier strikes of its kind when it was drawn. */
  readonly draw: number;
}

export interface Fault {
  /** Its key in the options; each strike counts as the mark `fault.KIND`. */
  readonly kind: string;
  /** Share of seeds in which it is on, from 0 to 1. Faults may hide each other, so each is off in most seeds. */
  readonly share: number;
  /** Bounds of the mean time between two strikes, in virtual milliseconds; a seed lasts 10 to 40 s before it heals. */
  readonly meanMs: readonly [least: number, most: number];
  /** Called once in a run in which it is on. */
  begin(world: FaultWorld): Strikes;
}

/** Maximum time for which a machine or process is down, in milliseconds: sessions outlast some of it, and not all. */
const downMsMax = 8_000;

/** Ends a process, and starts it after a while. */
export function crash(
  { later, losePower }: FaultWorld,
  process: SimProcess,
  random: SimRandom,
  losesPower: boolean,
): void {
  if (!process.isRunning) return;
  process.crash({ losePower: losesPower });
  if (losesPower) losePower(process);
  later(random.between(0, downMsMax), () => process.start());
}
