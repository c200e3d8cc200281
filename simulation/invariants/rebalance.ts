/**
 * Invariants of rebalancing, in addition to `invariants.ts`.
 *
 * B1: nothing moves while a node is missing, nor during the quiet time afterwards.
 * B2: no task of a service moves during a rollout of the service, or within the quiet time after a failure of one of its
 *     tasks.
 * B3: the number of moves in progress is limited by the round's budget, and the number started within the window by its
 *     budget. A leader learns of its predecessors' moves from their tasks, so those count as long as their tasks exist (ADR 10).
 * B4: a move leaves at most as many slots of its service without a running task as the update config lets change at the same
 *     time.
 * B5: a task that moves has run for the settling time.
 * B6: after the last fault, moves come to an end and do not cycle.
 */
import { placementView } from "../../actors/orchestration/placement-view.ts";
import { movedFrom, spentMoves, steadyLoads } from "../../machines/orchestration/rebalancing/moves.ts";
import { stampedTimes } from "../../machines/elapsed.ts";
import { judgeService } from "../../machines/orchestration/rebalancing/service.ts";
import { isRebalanced, settingsOf } from "../../machines/orchestration/rebalancing/settings.ts";
import { planRound, type Candidate } from "../../machines/orchestration/rebalancing/round.ts";
import { WhatIf } from "../../machines/scheduling/what-if.ts";
import { TaskDirty } from "../../machines/orchestration/task-dirty.ts";
import { isEnded, isWanted, observedState } from "../../machines/task.ts";
import { timeMs } from "../../proto/time.ts";
import {
  NodeStatus_State,
  TaskState,
  UpdateStatus_UpdateState,
  type Node,
  type Service,
  type Task,
} from "../../proto/gen/messages.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";
import { simRebalance } from "../workloads/rebalance.ts";

/** Commits by which a decision may lag behind its basis. */
const lag = 40;

interface Moment {
  readonly version: number;
  readonly timeMs: number;
}

const underWay: ReadonlySet<UpdateStatus_UpdateState> = new Set([
  UpdateStatus_UpdateState.UPDATING,
  UpdateStatus_UpdateState.PAUSED,
  UpdateStatus_UpdateState.ROLLBACK_STARTED,
  UpdateStatus_UpdateState.ROLLBACK_PAUSED,
]);

export class RebalanceChecks {
  /** Whether the managers' clocks agree, so that times can be compared. */
  readonly #isExact: boolean;
  /** When each node entered its current state. */
  readonly #nodes = new Map<string, Moment>();
  readonly #recovered = new Map<string, Moment>();
  readonly #rollouts = new Map<string, Moment>();
  readonly #failed = new Map<string, { readonly serviceId: string; readonly at: Moment }>();
  /** When a running task last stopped, by slot. */
  readonly #stopped = new Map<string, Moment>();
  readonly #moves: { readonly id: string; readonly epoch: number; readonly timeMs: number }[] = [];
  /** Version of the first commit seen: the history before a snapshot is unknown. */
  #first: number | null = null;

  constructor(isExact: boolean) {
    this.#isExact = isExact;
  }

  check(commit: Commit & { readonly epoch?: number }, store: Store): string | null {
    const moves: Task[] = [];
    this.#first ??= commit.version;
    const { epoch = 0 } = commit;
    const at = { version: commit.version, timeMs: commit.time };
    for (const change of commit.changes) {
      if (change.table === "node") this.#noteNode(change.old, change.action === "remove" ? null : change.object, at);
      if (change.table === "service" && change.action !== "remove") this.#noteService(change.old, change.object, at);
      if (change.table !== "task" || change.action === "remove") continue;
      this.#noteTask(change.old, change.object, at);
      if (change.action === "create" && movedFrom(change.object) !== "") moves.push(change.object);
    }
    for (const task of moves) {
      this.#moves.push({ id: task.id, epoch, timeMs: commit.time });
      if (commit.version - lag < this.#first) continue;
      const claim = this.#checkMove(task, at, store, epoch);
      if (claim !== null) return claim;
    }
    return null;
  }

  #noteNode(old: Node | null, node: Node | null, at: Moment): void {
    const id = (node ?? old)?.id ?? "";
    const state = node?.status?.state;
    if (old?.status?.state === state) return;
    if (old?.description != null && old.status?.state !== NodeStatus_State.READY && state === NodeStatus_State.READY)
      this.#recovered.set(id, at);
    this.#nodes.set(id, at);
  }

  #noteService(old: Service | null, service: Service, at: Moment): void {
    if (old?.updateStatus?.state !== service.updateStatus?.state) this.#rollouts.set(service.id, at);
  }

  #noteTask(old: Task | null, task: Task, at: Moment): void {
    const [before, state] = [old === null ? TaskState.NEW : observedState(old), observedState(task)];
    if (before !== state && (state === TaskState.FAILED || state === TaskState.REJECTED))
      this.#failed.set(task.id, { serviceId: task.serviceId, at });
    const ran = old !== null && before === TaskState.RUNNING && isWanted(old);
    if (ran && (state !== TaskState.RUNNING || !isWanted(task)))
      this.#stopped.set(`${task.serviceId} ${task.slot}`, at);
  }

  #checkMove(task: Task, at: Moment, store: Store, epoch: number): string | null {
    const service = store.get("service", task.serviceId);
    const [cluster] = store.all("cluster");
    if (service === undefined) return null;
    const settings = settingsOf(cluster);
    const what = `B: task ${task.id} follows ${movedFrom(task)} elsewhere`;
    const isOld = (moment: Moment | undefined): boolean => moment === undefined || moment.version < at.version - lag;
    const isRecent = (moment: Moment, spanMs: number): boolean => this.#isExact && at.timeMs - moment.timeMs < spanMs;
    for (const node of store.all("node")) {
      const state = node.status?.state ?? NodeStatus_State.UNKNOWN;
      const since = this.#nodes.get(node.id);
      if (node.description === null || !isOld(since)) continue;
      if (state === NodeStatus_State.UNKNOWN || state === NodeStatus_State.DISCONNECTED)
        return `${what} while node ${node.id} is ${state} (B1)`;
      if (state === NodeStatus_State.DOWN && since !== undefined && isRecent(since, settings.quietMs))
        return `${what} while node ${node.id} has been DOWN for ${at.timeMs - since.timeMs} ms (B1)`;
      const recovered = this.#recovered.get(node.id);
      if (recovered !== undefined && isOld(recovered) && isRecent(recovered, settings.quietMs))
        return `${what} ${at.timeMs - recovered.timeMs} ms after node ${node.id} came back (B1)`;
    }
    if (underWay.has(service.updateStatus?.state ?? 0) && isOld(this.#rollouts.get(service.id)))
      return `${what} during a rollout (B2)`;
    for (const [id, failure] of this.#failed) {
      if (failure.serviceId !== service.id || !isOld(failure.at) || !isRecent(failure.at, settings.quietMs)) continue;
      if (store.get("task", id) !== undefined)
        return `${what} ${at.timeMs - failure.at.timeMs} ms after ${id} failed (B2)`;
    }
    return (
      (settings.windowMs === simRebalance.windowMs ? this.#checkBudget(what, at, store, epoch) : null) ??
      this.#checkSlots(what, service, at, store) ??
      this.#checkAge(what, store.get("task", movedFrom(task)), at, settings.settleMs)
    );
  }

  #checkBudget(what: string, at: Moment, store: Store, epoch: number): string | null {
    let open = 0;
    for (const task of store.all("task")) {
      if (movedFrom(task) !== "" && isWanted(task) && observedState(task) < TaskState.RUNNING) open += 1;
    }
    if (open > simRebalance.roundMovesMax) return `${what} as move ${open} in progress (B3)`;
    const isKnown = (move: { readonly id: string; readonly epoch: number }): boolean =>
      move.epoch === epoch || store.get("task", move.id) !== undefined;
    const inWindow = this.#moves.filter(
      (move) => move.timeMs > at.timeMs - simRebalance.windowMs && isKnown(move),
    ).length;
    if (this.#isExact && inWindow > simRebalance.windowMovesMax)
      return `${what} as move ${inWindow} of the window (B3)`;
    return null;
  }

  #checkSlots(what: string, service: Service, at: Moment, store: Store): string | null {
    const running = new Set<number>();
    for (const task of store.tasksByService(service.id)) {
      if (isWanted(task) && observedState(task) === TaskState.RUNNING) running.add(task.slot);
    }
    const replicas = service.spec?.replicated?.replicas ?? 0;
    let missing = 0;
    for (const task of store.tasksByService(service.id)) {
      if (!isWanted(task) || running.has(task.slot)) continue;
      const stopped = this.#stopped.get(`${service.id} ${task.slot}`);
      const isExcused = stopped !== undefined && stopped.version >= at.version - lag && movedFrom(task) === "";
      if (!isExcused) missing += 1;
      running.add(task.slot);
    }
    // Computed independently, to detect a mistake in the original.
    const { parallelism } = service.spec?.update ?? { parallelism: 1 };
    return missing > (parallelism === 0 ? replicas : parallelism)
      ? `${what} while ${missing} of ${replicas} slots run nothing (B4)`
      : null;
  }

  #checkAge(what: string, before: Task | undefined, at: Moment, settleMs: number): string | null {
    if (!this.#isExact || before === undefined || isEnded(observedState(before))) return null;
    const ranMs = at.timeMs - stampedTimes.reachedMs(before);
    return ranMs < settleMs ? `${what}, which has run for ${ranMs} ms (B5)` : null;
  }
}

/** B6: why rebalancing is not finished in a cluster without faults, or null. */
export function findUnbalanced(store: Store, nowMs: number): string | null {
  const [cluster] = store.all("cluster");
  const settings = settingsOf(cluster);
  const nodeOf = (id: string): Node | undefined => store.get("node", id);
  const candidates: Candidate[] = [];
  for (const service of store.all("service")) {
    if (service.spec?.replicated == null || !isRebalanced(service, settings)) continue;
    const taskDirty = new TaskDirty();
    const verdict = judgeService(service, store.tasksByService(service.id), settings, nowMs, {
      nodeOf,
      times: stampedTimes,
      isDirty: (task) => taskDirty.isDirty(task, service, nodeOf),
    });
    if (verdict.kind === "movable") candidates.push({ service, tasks: verdict.tasks });
  }
  const steady = steadyLoads(store.all("task"), settings, nowMs, stampedTimes);
  const moves = planRound(candidates, 20, new WhatIf(placementView(store), nowMs), steady);
  // While some tasks fail for ever, the nodes' load keeps changing.
  const isQuiet = [...store.all("task")].every((task) => !isWanted(task) || observedState(task) === TaskState.RUNNING);
  const move = moves.find(({ level }) => isQuiet || level !== "load");
  if (move === undefined) return null;
  const made = [...store.all("task")].filter((task) => movedFrom(task) !== "");
  const { spent } = spentMoves(
    made.map((task) => timeMs(task.meta?.createdAt ?? null)),
    settings,
    nowMs,
  );
  return `task ${move.task.id} could move to ${move.toNodeId} (${move.why}); ${spent} moves in the window`;
}
