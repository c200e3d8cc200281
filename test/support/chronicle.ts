/**
 * The milestones of a service and of the nodes, from the versions of their objects in the log: the same for a real cluster and a
 * rehearsed one, so that both can be compared.
 */
import { observedState } from "../../machines/task.ts";
import {
  NodeStatus_State,
  TaskState,
  UpdateStatus_UpdateState,
  type Node,
  type Service,
  type Task,
} from "../../proto/gen/messages.ts";

export interface Version {
  readonly task?: Task | null;
  readonly service?: Service | null;
  readonly node?: Node | null;
}

interface Milestone {
  readonly atMs: number;
  readonly kind: string;
}

/** Milestones of one commit are in this order. */
const ranks = ["deployed", "scaled", "updating", "completed", "created", "stopping", "assigned", "ended", "running"];
const rollouts = new Map<UpdateStatus_UpdateState, string>([
  [UpdateStatus_UpdateState.UPDATING, "updating"],
  [UpdateStatus_UpdateState.COMPLETED, "completed"],
  [UpdateStatus_UpdateState.PAUSED, "paused"],
]);

export class Chronicle {
  readonly milestones: Milestone[] = [];
  readonly #tasks = new Map<string, Task>();
  readonly #nodes = new Map<string, NodeStatus_State>();
  #service: Service | null = null;

  add(atMs: number, kind: string): void {
    this.milestones.push({ atMs, kind });
  }

  /** New versions of objects, all of one commit. */
  commit(atMs: number, versions: readonly Version[]): void {
    const kinds = versions.flatMap(({ node, service, task }) => [
      ...(service == null ? [] : this.#serviceKinds(service)),
      ...(task == null ? [] : this.#taskKinds(task)),
      ...(node == null ? [] : this.#nodeKinds(node)),
    ]);
    const sorted = kinds.toSorted((a, b) => ranks.indexOf(a) - ranks.indexOf(b));
    for (const kind of sorted) this.add(atMs, kind);
  }

  /** Kinds in their order, with how many of them came one after the other: `running x4`. */
  get order(): readonly string[] {
    const runs: { readonly kind: string; count: number }[] = [];
    for (const { kind } of this.milestones) {
      const last = runs.at(-1);
      if (last?.kind === kind) last.count += 1;
      else runs.push({ kind, count: 1 });
    }
    return runs.map(({ count, kind }) => (count === 1 ? kind : `${kind} x${count}`));
  }

  /** When the milestones of this kind happened. */
  timesOf(kind: string): readonly number[] {
    return this.milestones.filter((each) => each.kind === kind).map(({ atMs }) => atMs);
  }

  #serviceKinds(service: Service): readonly string[] {
    const old = this.#service;
    this.#service = service;
    if (old === null) return ["deployed"];
    const state = service.updateStatus?.state;
    return [
      ...(service.spec?.replicated?.replicas === old.spec?.replicated?.replicas ? [] : ["scaled"]),
      ...(state === undefined || state === old.updateStatus?.state ? [] : [rollouts.get(state) ?? String(state)]),
    ];
  }

  #taskKinds(task: Task): readonly string[] {
    const old = this.#tasks.get(task.id);
    this.#tasks.set(task.id, task);
    const [state, before] = [observedState(task), old === undefined ? TaskState.NEW : observedState(old)];
    const [wanted, wantedBefore] = [task.desiredState, old?.desiredState ?? TaskState.NEW];
    const reached = (limit: TaskState): boolean => state >= limit && before < limit;
    return [
      ...(old === undefined ? ["created"] : []),
      ...(task.nodeId !== "" && (old?.nodeId ?? "") === "" ? ["assigned"] : []),
      ...(wanted > TaskState.RUNNING && wantedBefore <= TaskState.RUNNING ? ["stopping"] : []),
      ...(reached(TaskState.RUNNING) && state === TaskState.RUNNING ? ["running"] : []),
      ...(reached(TaskState.COMPLETE) ? ["ended"] : []),
    ];
  }

  /** Nodes that fall silent. */
  #nodeKinds({ description, id, status }: Node): readonly string[] {
    const [state, before] = [status?.state ?? NodeStatus_State.UNKNOWN, this.#nodes.get(id)];
    this.#nodes.set(id, state);
    const name = description?.hostname ?? id;
    if (state === before) return [];
    if (state === NodeStatus_State.DISCONNECTED) return [`${name} is silent`];
    return state === NodeStatus_State.DOWN ? [`${name} is down`] : [];
  }
}
