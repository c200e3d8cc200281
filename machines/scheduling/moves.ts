/**
 * Finds a task of a service that is better placed elsewhere, by the scheduler's own order: fewest tasks of the service in a
 * branch of each placement preference, then on a node, then fewest tasks at all.
 *
 * M1: a move goes where the scheduler would place the new task anyway; the scheduler's own code decides it.
 * M2: a move reduces a difference of at least two, at the highest level at which the two nodes differ. So the sum of squares
 *     at that level falls and none above it changes: a sequence of moves ends and cannot cycle.
 * M3: if the service's own counts gain nothing (they differ by one, so a move would only swap them), a difference of at
 *     least two in all tasks of two nodes of the same branch counts instead, which changes no level above. The difference must
 *     exist both in the scheduler's counts and in steady tasks alone; otherwise short-lived tasks, such as those of a service
 *     that keeps failing, would make others move back and forth.
 */
import { Task, TaskState, type Service } from "../../proto/gen/messages.ts";
import { Balance, type Gain, type SteadyLoads } from "./balance.ts";
import type { NodeInfo } from "./tracked.ts";
import type { WhatIf } from "./what-if.ts";

export interface Move extends Gain {
  readonly task: Task;
  readonly toNodeId: string;
}

/** Nodes that are tried as the source of one move, the fullest first. Each attempt judges all nodes. */
const sourcesMax = 8;

/** The moves of one service, each computed as if the previous ones were done. */
export class ServiceMoves {
  readonly #service: Service;
  readonly #isStartFirst: boolean;
  readonly #whatIf: WhatIf;
  readonly #steady: SteadyLoads;
  readonly #balance: Balance;
  /** Movable tasks by node; the next to move is last. */
  readonly #movable = new Map<string, Task[]>();

  /** `isStartFirst`: a task still runs when its successor is placed. The moves found are charged in `whatIf` and `steady`. */
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
    // The newest task loses the least; on a tie, the highest slot moves.
    for (const tasks of this.#movable.values())
      tasks.sort((a, b) => createdSeconds(a) - createdSeconds(b) || a.slot - b.slot);
  }

  /** Null if no move gains enough. */
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
      // A paused node keeps its tasks: they could not move back.
      if (info?.isReady === true && this.#balance.mayGain(info)) promising.push(info);
    }
    const { id } = this.#service;
    promising.sort(
      (a, b) => b.activeOf(id) - a.activeOf(id) || b.activeTasks - a.activeTasks || (a.id < b.id ? -1 : 1),
    );
    // One of each branch first: the cluster's fullest node may be in a branch with few tasks.
    const first = new Map<string, NodeInfo>();
    for (const info of promising) {
      const leaf = this.#balance.leafOf(info);
      if (!first.has(leaf)) first.set(leaf, info);
    }
    const chosen = new Set([...first.values(), ...promising]);
    return [...chosen].slice(0, sourcesMax);
  }

  /** M1. Leaves `whatIf` unchanged if there is no gain. */
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
    // Stop-first: it no longer counts, but keeps its reservations until it has stopped.
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
    // With the successor's resources there, not this task's.
    nodes.follow(Task.patch(task, { nodeId: to.id, assignedGenericResources: generic, volumes }));
    return { task, toNodeId: to.id, ...gain };
  }
}

function createdSeconds(task: Task): number {
  return task.meta?.createdAt?.seconds ?? 0;
}
