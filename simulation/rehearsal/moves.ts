/** Tasks that were replaced without a change of their service's spec: when, from which node to which, and why. */
import { movedFrom } from "../../machines/orchestration/rebalancing/moves.ts";
import { isEnded, isWanted, observedState, specVersionOf } from "../../machines/task.ts";
import { NodeSpec_Availability, NodeStatus_State, TaskState, type Task } from "../../proto/gen/messages.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { Move } from "./outcome.ts";

interface Pending {
  readonly atMs: number;
  readonly from: string;
  readonly reason: string;
  to: string | null;
}

/** The moves of all services. */
export class Moves {
  /** By service id. */
  readonly #moves = new Map<string, Pending[]>();
  /** When each task was created, and each node was last declared DOWN. */
  readonly #madeMs = new Map<string, number>();
  readonly #downMs = new Map<string, number>();
  /** By the id of the successor, while no node has it. */
  readonly #unplaced = new Map<string, Pending>();

  /** Since `began`, in milliseconds since then. */
  of(serviceId: string, began: number): readonly Move[] {
    const moves = (this.#moves.get(serviceId) ?? []).filter(({ atMs }) => atMs >= began);
    return moves.map(({ atMs, from, reason, to }) => ({ atMs: Math.round(atMs - began), from, to, reason }));
  }

  /** A node was declared DOWN. */
  noteDown(nodeId: string, atMs: number): void {
    this.#downMs.set(nodeId, atMs);
  }

  /** A task was removed from the log. */
  forget(taskId: string): void {
    this.#madeMs.delete(taskId);
    this.#settle(taskId, "");
  }

  /** A task was created or changed. `isNew`: created. */
  note(task: Task, isNew: boolean, atMs: number, store: Store): void {
    if (isNew) {
      this.#madeMs.set(task.id, atMs);
      this.#begin(task, atMs, store);
    }
    if (task.nodeId !== "") this.#settle(task.id, nodeName(task.nodeId, store));
    else if (!isWanted(task)) this.#settle(task.id, "");
  }

  /** A node took the task, or (empty) none will. */
  #settle(taskId: string, to: string): void {
    const pending = this.#unplaced.get(taskId);
    if (pending === undefined) return;
    pending.to = to;
    this.#unplaced.delete(taskId);
  }

  #begin(task: Task, atMs: number, store: Store): void {
    const before = predecessorOf(task, store);
    if (before === null || before.nodeId === "") return;
    // A task with another spec comes from a rollout.
    if (specVersionOf(before) !== specVersionOf(task)) return;
    const move: Pending = {
      atMs,
      from: nodeName(before.nodeId, store),
      to: null,
      reason: this.#wasLost(before, store)
        ? `node ${nodeName(before.nodeId, store)} was down`
        : reasonFor(task, before, store),
    };
    this.#unplaced.set(task.id, move);
    const moves = this.#moves.get(task.serviceId);
    if (moves === undefined) this.#moves.set(task.serviceId, [move]);
    else moves.push(move);
  }

  /** Its node was down since it was created, and has come back. */
  #wasLost({ id, nodeId, status }: Task, store: Store): boolean {
    const isBack = store.get("node", nodeId)?.status?.state === NodeStatus_State.READY;
    const state = status?.state ?? TaskState.NEW;
    if (!isBack || state === TaskState.FAILED || state === TaskState.REJECTED) return false;
    return (this.#downMs.get(nodeId) ?? Number.NEGATIVE_INFINITY) >= (this.#madeMs.get(id) ?? 0);
  }
}

/** The newest other task at the same place. */
function predecessorOf(task: Task, store: Store): Task | null {
  let before: Task | null = null;
  for (const other of store.tasksAt(task.serviceId, task.slot, task.nodeId)) if (other.id !== task.id) before = other;
  return before;
}

function reasonFor(task: Task, before: Task, store: Store): string {
  const state = observedState(before);
  const said = before.status?.err ?? "";
  if (movedFrom(task) !== "") return "moved to balance the cluster";
  if (state === TaskState.FAILED) return `task failed: ${failureText(before)}`;
  if (state === TaskState.REJECTED) return `task rejected${said === "" ? "" : `: ${said}`}`;
  const node = store.get("node", before.nodeId);
  const name = nodeName(before.nodeId, store);
  if (node === undefined) return `node ${name} was removed`;
  if (node.spec?.availability === NodeSpec_Availability.DRAIN) return `node ${name} is drained`;
  if (node.status?.state !== NodeStatus_State.READY) return `node ${name} is down`;
  if (isEnded(state)) return "task ended";
  return said === "" ? "task shut down" : said;
}

function failureText({ status }: Task): string {
  const code = status?.container?.exitCode ?? 0;
  if (code > 0) return `exit code ${code}`;
  return status?.err ?? "";
}

export function nodeName(id: string, store: Store): string {
  return store.get("node", id)?.description?.hostname ?? id;
}
