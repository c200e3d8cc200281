/** Where tasks wait for a node: with those that ask the same, or at the node that they were made for. */
import type { PlacementPreference, Task } from "../../proto/gen/messages.ts";
import type { Tally } from "./explain.ts";
import { demandOf, type Demand } from "./filters.ts";
import { TaskQueue } from "./tracked.ts";

/** Tasks that ask the same of a node and count as one service's. */
export class Group extends TaskQueue {
  readonly key: string;
  readonly demand: Demand;
  readonly preferences: readonly PlacementPreference[];
  /** What the nodes said when none of them took the rest; null: they must be asked. */
  tally: Tally | null = null;
  /** Changes of nodes that the tally knows of (a place in the Backlog's list of them). */
  seen = 0;
  /** The text that all its tasks were told; null: some may have to be told. */
  said: string | null = null;
  /** One of its tasks. */
  readonly #example: Task;

  constructor(key: string, task: Task) {
    super();
    this.key = key;
    this.demand = demandOf(task);
    this.preferences = task.spec?.placement?.preferences ?? [];
    this.#example = task;
  }

  /** True only for a task of this group; it says so of most, without making a key. */
  isLike({ spec, serviceId, specVersion, endpoint, logDriver, networks }: Task): boolean {
    const example = this.#example;
    if (
      example.spec !== spec ||
      example.serviceId !== serviceId ||
      example.specVersion !== specVersion ||
      example.endpoint !== endpoint ||
      example.logDriver !== logDriver ||
      example.networks.length !== networks.length
    )
      return false;
    // Their addresses differ; the networks are what they have in common.
    for (let at = 0; at < networks.length; at += 1)
      if (networks[at]?.network !== example.networks[at]?.network) return false;
    return true;
  }

  get wantsVolumes(): boolean {
    return this.demand.volumes.length > 0;
  }
}

/** Tasks that were made for one node. */
export class Station extends TaskQueue {
  readonly nodeId: string;
  wantsVolumes = false;

  constructor(nodeId: string) {
    super();
    this.nodeId = nodeId;
  }
}
