/** What every actor of a manager is handed. One process of a real cluster has one; a simulation has one per manager. */
import type { LogTimes } from "../machines/elapsed.ts";
import type { Host } from "../runtime/host.ts";
import type { Bus, Clock, Random, Telemetry } from "../runtime/ports.ts";
import type { Proposer, Store } from "../runtime/store/store.ts";

export interface Environment {
  /** Node id of this manager. */
  readonly managerId: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: Bus;
  readonly telemetry: Telemetry;
  readonly host: Host;
  /** This process's replica. */
  readonly store: Store;
  readonly proposer: Proposer;
  /** Absent where nobody watches the clock. */
  readonly clockWatch?: ClockLook;
  /** How long ago things in the log happened; absent where its own times are taken at their word. */
  readonly times?: LogTimes;
}

/** Notices that somebody set this machine's wall clock. */
export interface ClockLook {
  /**
   * Looks now. If this manager leads and the clock was set since the last look, its term is over when this returns: to be called
   * where the caller may be stopped, not while a commit is told.
   */
  look(): void;
}

/** Something that was started and can be ended. `stop` may be called twice. */
export interface Running {
  stop(): void;
}
