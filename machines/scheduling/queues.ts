/** The queues of tasks that wait for a node: one per group, and one per node for tasks created for that node. */
import type { PlacementPreference, Task } from "../../proto/gen/messages.ts";
import type { Tally } from "./explain.ts";
import { demandOf, type Demand } from "./filters.ts";
import { TaskQueue } from "./tracked.ts";

/** Tasks of one service with the same requirements. */
export class Group extends TaskQueue {
  readonly key: string;
  readonly demand: Demand;
  readonly preferences: readonly PlacementPreference[];
  /** The verdicts when no node could run the remaining tasks; null: nodes must be judged. */
  tally: Tally | null = null;
  /** How many node changes the tally includes (an index in the Backlog's list). */
  seen = 0;
  /** The explanation that all its tasks have; null: some may lack it. */
  reported: string | null = null;
  /** One of its tasks. */
  readonly #example: Task;

  constructor(key: string, task: Task) {
    super();
    this.key = key;
    this.demand = demandOf(task);
    this.preferences = task.spec?.placement?.preferences ?? [];
    this.#example = task;
  }

  /** A fast check without a key: true only for tasks of this group, and for most of them. */
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
    // The addresses differ between tasks; only the networks must be equal.
    for (let at = 0; at < networks.length; at += 1)
      if (networks[at]?.network !== example.networks[at]?.network) return false;
    return true;
  }

  get wantsVolumes(): boolean {
    return this.demand.volumes.length > 0;
  }
}

/** Tasks created for one node. */
export class NodeQueue extends TaskQueue {
  readonly nodeId: string;
  wantsVolumes = false;

  constructor(nodeId: string) {
    super();
    this.nodeId = nodeId;
  }
}
