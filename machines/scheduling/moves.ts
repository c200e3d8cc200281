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
import { Task, TaskState, type Node, type Service } from "../../proto/gen/messages.ts";
import type { NodeInfo, NodeSet } from "./node-set.ts";
import { spreadLabels } from "./spread.ts";
import type { WhatIf } from "./what-if.ts";

/** The level at which a move gains something. */
export type Level = "preference" | "node" | "load";

export interface Gain {
  readonly level: Level;
  readonly why: string;
}

export interface Move extends Gain {
  readonly task: Task;
  readonly toNodeId: string;
}

/** Tasks that are there to stay, by node id (M3). */
export type SteadyLoads = Map<string, number>;

/** Nodes that are tried as the source of one move: the fullest first. Each try costs a look at all nodes. */
const sourcesMax = 8;
/** How much smaller an imbalance must become (M2, M3): a difference of one would only change sides. */
const gainMin = 2;

type Label = (node: Node) => string;

/** How a service's tasks lie on the nodes. */
class Spread {
  readonly #serviceId: string;
  readonly #labels: readonly Label[];
  readonly #names: readonly string[];
  readonly #paths = new Map<NodeInfo, readonly string[]>();
  /** Tasks of the service by the path of a branch. */
  readonly #branches = new Map<string, number>();
  /** By the path of a branch: the fewest tasks of the service in a branch below it that has a node ready for more. */
  readonly #fewest = new Map<string, number>();
  /** By the path of a last branch: the fewest tasks of the service on a ready node of it. */
  readonly #fewestOnNode = new Map<string, number>();
  /** By that path and a number of tasks of the service: the fewest tasks in all on a ready node with so many. */
  readonly #fewestInAll = new Map<string, number>();

  readonly #steady: SteadyLoads;

  constructor(service: Service, nodes: readonly NodeInfo[], steady: SteadyLoads) {
    this.#steady = steady;
    const preferences = service.spec?.task?.placement?.preferences ?? [];
    this.#serviceId = service.id;
    this.#labels = spreadLabels(preferences);
    this.#names = preferences.flatMap(({ spread }) =>
      spreadLabels([{ spread }]).length === 0 ? [] : [spread?.spreadDescriptor ?? ""],
    );
    for (const info of nodes) {
      const path = this.#path(info);
      for (let level = 1; level <= path.length; level += 1) {
        const key = keyOf(path, level);
        this.#branches.set(key, (this.#branches.get(key) ?? 0) + info.activeOf(this.#serviceId));
      }
    }
    for (const info of nodes) if (info.isReady) this.#noteReady(info);
  }

  #noteReady(info: NodeInfo): void {
    const path = this.#path(info);
    for (let level = 0; level < path.length; level += 1) {
      lower(this.#fewest, keyOf(path, level), this.#branches.get(keyOf(path, level + 1)) ?? 0);
    }
    const leaf = keyOf(path, path.length);
    const own = info.activeOf(this.#serviceId);
    lower(this.#fewestOnNode, leaf, own);
    lower(this.#fewestInAll, `${leaf}${own}`, info.activeTasks);
  }

  /** Whether there is a ready node on which a task of this one might be better placed. */
  mayGain(info: NodeInfo): boolean {
    const path = this.#path(info);
    for (let level = 0; level < path.length; level += 1) {
      const own = this.#branches.get(keyOf(path, level + 1)) ?? 0;
      if (own - (this.#fewest.get(keyOf(path, level)) ?? own) >= gainMin) return true;
    }
    const leaf = keyOf(path, path.length);
    const own = info.activeOf(this.#serviceId);
    if (own - (this.#fewestOnNode.get(leaf) ?? own) >= gainMin) return true;
    const inAll = this.#fewestInAll.get(`${leaf}${own - 1}`);
    return inAll !== undefined && info.activeTasks - inAll >= gainMin;
  }

  /** The branch of all preferences in which the node is. */
  leaf(info: NodeInfo): string {
    const path = this.#path(info);
    return keyOf(path, path.length);
  }

  /** Why a task is better on `to` than on `from`, where it is; null when it is not (M2, M3). */
  gain(from: NodeInfo, to: NodeInfo): Gain | null {
    const [path, other] = [this.#path(from), this.#path(to)];
    for (const [level, value] of path.entries()) {
      if (value === other[level]) continue;
      const many = this.#branches.get(keyOf(path, level + 1)) ?? 0;
      const few = this.#branches.get(keyOf(other, level + 1)) ?? 0;
      if (many - few < gainMin) return null;
      const name = this.#names[level] ?? "";
      const why = `${name}=${value} has ${many} tasks of the service, ${name}=${other[level]} has ${few}`;
      return { level: "preference", why };
    }
    const [own, others] = [from.activeOf(this.#serviceId), to.activeOf(this.#serviceId)];
    if (own - others >= gainMin) {
      return { level: "node", why: `${nameOf(from)} has ${own} tasks of the service, ${nameOf(to)} has ${others}` };
    }
    const isSwap = own - others === 1;
    if (!isSwap || from.activeTasks - to.activeTasks < gainMin) return null;
    const [many, few] = [this.#steady.get(from.id) ?? 0, this.#steady.get(to.id) ?? 0];
    if (many - few < gainMin) return null;
    return { level: "load", why: `${nameOf(from)} has ${many} steady tasks in all, ${nameOf(to)} has ${few}` };
  }

  #path(info: NodeInfo): readonly string[] {
    let path = this.#paths.get(info);
    if (path === undefined) {
      const { node } = info;
      path = this.#labels.map((label) => (node === null ? "" : label(node)));
      this.#paths.set(info, path);
    }
    return path;
  }
}

function lower(minima: Map<string, number>, key: string, value: number): void {
  const known = minima.get(key);
  if (known === undefined || value < known) minima.set(key, value);
}

function keyOf(path: readonly string[], levels: number): string {
  return JSON.stringify(path.slice(0, levels));
}

function nameOf(info: NodeInfo): string {
  return `node ${info.node?.description?.hostname || info.id}`;
}

/**
 * The best move of one service; null when none gains enough. `movable`: its tasks that may be moved.
 * `isStartFirst`: the task is still there when the new one gets its node.
 * The move is then charged in `whatIf`, as if done, under the task's own id, and in `steady`.
 */
export function findMove(
  service: Service,
  movable: readonly Task[],
  isStartFirst: boolean,
  whatIf: WhatIf,
  steady: SteadyLoads,
): Move | null {
  if (movable.length === 0) return null;
  const spread = new Spread(service, whatIf.nodes.nodes, steady);
  for (const from of sources(service, movable, spread, whatIf.nodes)) {
    const task = newestOn(movable, from.id);
    if (task === null) continue;
    const move = tryMove(service, task, from, isStartFirst, spread, whatIf);
    if (move === null) continue;
    steady.set(from.id, (steady.get(from.id) ?? 0) - 1);
    steady.set(move.toNodeId, (steady.get(move.toNodeId) ?? 0) + 1);
    return move;
  }
  return null;
}

/** Nodes from which a task may be worth moving, the most promising first. */
function sources(service: Service, movable: readonly Task[], spread: Spread, nodes: NodeSet): readonly NodeInfo[] {
  const found = new Map<string, NodeInfo>();
  for (const { nodeId } of movable) {
    const info = nodes.find(nodeId);
    if (info !== undefined) found.set(nodeId, info);
  }
  const gains = (info: NodeInfo): boolean => spread.mayGain(info);
  const inOrder = [...found.values()].sort(
    (a, b) =>
      b.activeOf(service.id) - a.activeOf(service.id) || b.activeTasks - a.activeTasks || (a.id < b.id ? -1 : 1),
  );
  const chosen: NodeInfo[] = [];
  // One for each branch first: the fullest node of the cluster may lie in a branch that has little.
  const leaves = new Set<string>();
  const rest: NodeInfo[] = [];
  for (const info of inOrder) {
    if (chosen.length >= sourcesMax) break;
    const leaf = spread.leaf(info);
    if (leaves.has(leaf)) rest.push(info);
    else if (gains(info)) {
      leaves.add(leaf);
      chosen.push(info);
    }
  }
  for (const info of rest) {
    if (chosen.length >= sourcesMax) break;
    if (gains(info)) chosen.push(info);
  }
  return chosen;
}

/** The one that has run for the shortest time loses least; of equals the highest slot. */
function newestOn(movable: readonly Task[], nodeId: string): Task | null {
  let newest: Task | null = null;
  for (const task of movable) {
    if (task.nodeId !== nodeId) continue;
    if (newest === null || isNewer(task, newest)) newest = task;
  }
  return newest;
}

function isNewer(task: Task, other: Task): boolean {
  const [a, b] = [task.meta?.createdAt ?? null, other.meta?.createdAt ?? null];
  const seconds = (a?.seconds ?? 0) - (b?.seconds ?? 0);
  return seconds !== 0 ? seconds > 0 : task.slot > other.slot;
}

/** M1. Leaves `whatIf` as it was when it is no gain. */
function tryMove(
  service: Service,
  task: Task,
  from: NodeInfo,
  isStartFirst: boolean,
  spread: Spread,
  whatIf: WhatIf,
): Move | null {
  const { nodes } = whatIf;
  const successor = Task.patch(task, {
    id: `${task.id}/moved`,
    nodeId: "",
    spec: service.spec?.task ?? task.spec,
    specVersion: service.specVersion,
    desiredState: TaskState.RUNNING,
    assignedGenericResources: [],
    volumes: [],
  });
  // Stop-first: it counts no more, and holds what it has reserved until it has stopped.
  if (!isStartFirst) nodes.follow(Task.patch(task, { desiredState: TaskState.SHUTDOWN }));
  const nodeId = whatIf.placeOne(successor);
  if (nodeId !== null) whatIf.release(successor.id);
  nodes.follow(task);
  const to = nodeId === null ? undefined : nodes.find(nodeId);
  if (to === undefined || to === from) return null;
  const gain = spread.gain(from, to);
  if (gain === null) return null;
  nodes.follow(Task.patch(task, { nodeId: to.id }));
  return { task, toNodeId: to.id, ...gain };
}
