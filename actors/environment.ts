/** The environment of a manager's actors. A real process has one; a simulation has one per manager. */
import type { LogTimes } from "../machines/elapsed.ts";
import type { Host } from "../runtime/host.ts";
import type { Bus, Clock, Random, Telemetry } from "../runtime/ports/index.ts";
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
  /** Absent where the clock is not watched. */
  readonly clockWatch?: ClockLook;
  /** When things in the log happened, as measured by this manager; `stampedTimes` where nothing measures them. */
  readonly times: LogTimes;
}

/** Detects that this machine's wall clock was set. */
export interface ClockLook {
  /**
   * Checks now. If this manager leads and the clock was set since the last check, its term is over when this returns: to be
   * called where the caller may be stopped, not during a commit.
   */
  look(): void;
}

/** Something that was started and can be stopped. `stop` may be called twice. */
export interface Running {
  stop(): void;
}
