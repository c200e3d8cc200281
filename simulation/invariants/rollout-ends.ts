/**
 * Invariants of completed rollouts, in addition to `invariants-rollout.ts`, checked against tasks instead of the rollout's own
 * counters.
 *
 * R7: no rollout completes with more failed slots than its settings tolerate, in either direction.
 * R8: no rollout completes before the tasks that it started have run for the monitoring period.
 *
 * Both concern the slots that the rollout changes (U3 of the tracker). A rollback does not change slots that still have the
 * spec to which it leads; the restart supervisor restarts their tasks, and the rollout does not wait for them.
 */
import { wasEvicted } from "../../machines/orchestration/enforcer.machine.ts";
import { hasRollbackStatus } from "../../machines/orchestration/rollout/status.ts";
import { settingsOf } from "../../machines/orchestration/rollout/settings.ts";
import { TaskDirty } from "../../machines/orchestration/task-dirty.ts";
import { isLeaving, isWanted, observedState, specVersionOf } from "../../machines/task.ts";
import { timeMs } from "../../proto/time.ts";
import {
  TaskState,
  UpdateConfig_FailureAction,
  UpdateStatus_UpdateState,
  type Service,
  type Task,
} from "../../proto/gen/messages.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";

/** Transactions by which a decision may lag behind its basis. */
const lag = 40;
/** A leader reads its clock once per step. */
const toleranceMs = 50;

interface Tally {
  /** The leader whose count applies: a later one may count less, because it sees only what the store still has. */
  readonly epoch: number;
  /** Failed slots, with the version of the first failure. */
  readonly failed: Map<string, number>;
}

export class RolloutEnds {
  readonly #tallies = new Map<string, Tally>();
  readonly #areExact: boolean;

  /** `areExact`: every clock shows true time. */
  constructor(areExact: boolean) {
    this.#areExact = areExact;
  }

  check(commit: Commit, epoch: number, store: Store): string | null {
    for (const change of commit.changes) {
      if (change.table === "service" && change.action === "update" && change.old !== null) {
        const claim = this.#lookAtService(change.old, change.object, commit.version, store);
        if (claim !== null) return claim;
        if (isBegun(change.old, change.object)) this.#tallies.delete(change.object.id);
      }
      if (change.table === "task" && change.action === "update" && change.old !== null)
        this.#checkTask(change.old, change.object, epoch, commit.version, store);
    }
    return null;
  }

  #checkTask(old: Task, task: Task, epoch: number, version: number, store: Store): void {
    const state = observedState(task);
    const hasFailed = state === TaskState.FAILED || state === TaskState.REJECTED;
    // A task that ran may have failed after its monitoring period.
    if (!hasFailed || observedState(old) >= TaskState.RUNNING || !isWanted(old) || wasEvicted(task)) return;
    const service = store.get("service", task.serviceId);
    if (service === undefined || !isPart(task, service, store)) return;
    let tally = this.#tallies.get(service.id);
    if (tally?.epoch !== epoch) this.#tallies.set(service.id, (tally = { epoch, failed: new Map() }));
    if (!tally.failed.has(slotOf(task))) tally.failed.set(slotOf(task), version);
  }

  #lookAtService(old: Service, service: Service, version: number, store: Store): string | null {
    const { COMPLETED, ROLLBACK_COMPLETED, ROLLBACK_STARTED, UPDATING } = UpdateStatus_UpdateState;
    const [before, state] = [old.updateStatus?.state, service.updateStatus?.state];
    const isOver =
      (before === UPDATING && state === COMPLETED) || (before === ROLLBACK_STARTED && state === ROLLBACK_COMPLETED);
    if (!isOver) return null;
    return this.#checkFailures(old, version, store) ?? (this.#areExact ? checkWatched(service, version, store) : null);
  }

  /** R7 */
  #checkFailures(service: Service, version: number, store: Store): string | null {
    const settings = settingsOf(service, hasRollbackStatus(service));
    const total = store.get("rollout", service.id)?.total ?? 0;
    const failed = [...(this.#tallies.get(service.id)?.failed ?? [])].filter(([, at]) => at < version - lag);
    const specified = hasRollbackStatus(service) ? service.spec?.rollback : service.spec?.update;
    const ratio = specified?.maxFailureRatio ?? 0;
    if (settings.action === UpdateConfig_FailureAction.CONTINUE || failed.length === 0) return null;
    if (Math.fround(failed.length / Math.max(1, total)) <= Math.fround(ratio)) return null;
    const names = failed.map(([slot]) => slot).join();
    return `R7: the rollout of ${service.id} completed although slots ${names} of ${total} failed, more than the ratio ${ratio}`;
  }
}

/** R8 */
function checkWatched(service: Service, version: number, store: Store): string | null {
  const { monitorMs } = settingsOf(service, hasRollbackStatus(service));
  const overMs = timeMs(service.meta?.updatedAt ?? null);
  for (const task of store.tasksByService(service.id)) {
    if (!isWanted(task) || observedState(task) !== TaskState.RUNNING || !isPart(task, service, store)) continue;
    if ((task.meta?.version?.index ?? 0) > version - lag && monitorMs === 0) continue;
    const ranMs = overMs - timeMs(task.status?.appliedAt ?? null);
    if (ranMs < monitorMs - toleranceMs)
      return `R8: the rollout of ${service.id} completed when ${task.id} had run for ${ranMs} ms of ${monitorMs}`;
  }
  return null;
}

/** The task has the current spec, and its slot had a task of another version, which may have had the same content. */
function isPart(task: Task, service: Service, store: Store): boolean {
  if (specVersionOf(task) !== specVersionOf(service)) return false;
  const taskDirty = new TaskDirty();
  const fellows =
    task.slot === 0 ? store.tasksAt(task.serviceId, 0, task.nodeId) : store.tasksBySlot(task.serviceId, task.slot);
  for (const other of fellows)
    if (!isLeaving(other) && taskDirty.isDirty(other, service, (id) => store.get("node", id))) return true;
  return false;
}

/** An update or rollback starts, or a paused one resumes. */
function isBegun(old: Service, service: Service): boolean {
  return specVersionOf(old) !== specVersionOf(service) || old.updateStatus?.state !== service.updateStatus?.state;
}

function slotOf({ nodeId, slot }: Task): string {
  return slot === 0 ? nodeId : String(slot);
}
