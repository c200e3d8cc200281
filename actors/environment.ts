/** What every actor of a manager is handed. One process of a real cluster has one; a simulation has one per manager. */
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
}

/** Something that was started and can be ended. `stop` may be called twice. */
export interface Running {
  stop(): void;
}
