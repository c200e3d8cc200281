/**
 * Which task of a service is better placed elsewhere, by the scheduler's own order: fewest tasks of the service in a
 * branch of each placement preference, then on a node, then fewest tasks at all.
 *
 * M1: a move goes where the scheduler would put the new task anyway; whether it does so is asked of the scheduler's code.
 * M2: a move makes a difference of at least two smaller, at the highest level at which the two nodes differ. By that the
 *     sum of squares at that level falls and none above it changes, so a sequence of moves ends and cannot come back.
 * M3: where the service's own counts gain nothing (they differ by one, so they would only be swapped), a difference of at
 *     least two in all tasks of two nodes of the same branch counts instead; that leaves every level above as it was. It must
 *     be there both in what the scheduler counts and in steady tasks alone: tasks that come and go, as those of a service
 *     that fails all the time, would otherwise have others move to and fro after them.
 */
import { Task, TaskState, type Service } from "../../proto/gen/messages.ts";
import { Balance, type Gain, type SteadyLoads } from "./balance.ts";
import type { NodeInfo } from "./node-set.ts";
import type { WhatIf } from "./what-if.ts";

export interface Move extends Gain {
  readonly task: Task;
  readonly toNodeId: string;
}

/** Nodes that are tried as the source of one move: the fullest first. Each try costs a look at all nodes. */
const sourcesMax = 8;

/** The moves of one service, one after the other, each as if those before it had been made. */
export class ServiceMoves {
  readonly #service: Service;
  readonly #isStartFirst: boolean;
  readonly #whatIf: WhatIf;
  readonly #steady: SteadyLoads;
  readonly #balance: Balance;
  /** Tasks that may be moved, by node; the next to go last. */
  readonly #movable = new Map<string, Task[]>();

  /** `isStartFirst`: a task is still there when its successor gets its node. What is found is charged in `whatIf` and `steady`. */
  constructor(service: Service, movable: readonly Task[], isStartFirst: boolean, whatIf: WhatIf, steady: SteadyLoads) {
    this.#service = service;
    this.#isStartFirst = isStartFirst;
    this.#whatIf = whatIf;
    this.#steady = steady;
    this.#balance = new Balance(service, steady, (nodeId) => whatIf.nodes.nameOf(nodeId));
    for (const task of movable) {
      const known = this.#movable.get(task.nodeId);
      if (known === undefined) this.#movable.set(task.nodeId, [task]);
      else known.push(task);
    }
    // The one that was made last loses least; of equals the highest slot.
    for (const tasks of this.#movable.values())
      tasks.sort((a, b) => madeSeconds(a) - madeSeconds(b) || a.slot - b.slot);
  }

  /** Null when none gains enough. */
  next(): Move | null {
    const { nodes } = this.#whatIf;
    this.#balance.refresh(nodes.nodes);
    for (const from of this.#sources()) {
      const tasks = this.#movable.get(from.id) ?? [];
      const task = tasks.at(-1);
      const move = task === undefined ? null : this.#try(task, from);
      if (move === null) continue;
      tasks.pop();
      this.#steady.set(from.id, (this.#steady.get(from.id) ?? 0) - 1);
      this.#steady.set(move.toNodeId, (this.#steady.get(move.toNodeId) ?? 0) + 1);
      return move;
    }
    return null;
  }

  /** Nodes from which a task may be worth moving, the most promising first. */
  #sources(): readonly NodeInfo[] {
    const promising: NodeInfo[] = [];
    for (const [nodeId, tasks] of this.#movable) {
      const info = tasks.length === 0 ? undefined : this.#whatIf.nodes.find(nodeId);
      // A paused node keeps its tasks: what leaves it could not come back.
      if (info?.isReady === true && this.#balance.mayGain(info)) promising.push(info);
    }
    const { id } = this.#service;
    promising.sort(
      (a, b) => b.activeOf(id) - a.activeOf(id) || b.activeTasks - a.activeTasks || (a.id < b.id ? -1 : 1),
    );
    // One for each branch first: the fullest node of the cluster may lie in a branch that has little.
    const first = new Map<string, NodeInfo>();
    for (const info of promising) {
      const leaf = this.#balance.leafOf(info);
      if (!first.has(leaf)) first.set(leaf, info);
    }
    const chosen = new Set([...first.values(), ...promising]);
    return [...chosen].slice(0, sourcesMax);
  }

  /** M1. Leaves `whatIf` as it was when it is no gain. */
  #try(task: Task, from: NodeInfo): Move | null {
    const { nodes } = this.#whatIf;
    const successor = Task.patch(task, {
      id: `${task.id}/moved`,
      nodeId: "",
      spec: this.#service.spec?.task ?? task.spec,
      specVersion: this.#service.specVersion,
      desiredState: TaskState.RUNNING,
      assignedGenericResources: [],
      volumes: [],
    });
    // Stop-first: it counts no more, and holds what it has reserved until it has stopped.
    if (!this.#isStartFirst) nodes.follow(Task.patch(task, { desiredState: TaskState.SHUTDOWN }));
    const placed = this.#whatIf.place([successor]).get(successor.id);
    if (placed?.kind === "placed") this.#whatIf.release(successor.id);
    nodes.follow(task);
    if (placed?.kind !== "placed") return null;
    const { generic, volumes } = placed;
    const to = nodes.find(placed.nodeId);
    if (to === undefined || to === from) return null;
    const gain = this.#balance.gain(from, to);
    if (gain === null) return null;
    // With what the successor gets there, not what this one has here.
    nodes.follow(Task.patch(task, { nodeId: to.id, assignedGenericResources: generic, volumes }));
    return { task, toNodeId: to.id, ...gain };
  }
}

function madeSeconds(task: Task): number {
  return task.meta?.createdAt?.seconds ?? 0;
}
