/**
 * What must hold when a rollout is completed, beside `invariants-rollout.ts`: what is looked at is the tasks, not what the
 * rollout has counted.
 *
 * R7: no rollout is completed in which more slots failed than its settings tolerate, whichever way it goes.
 * R8: no rollout is completed before the tasks that it started have been watched for as long as its settings say.
 *
 * Both speak of the slots that the rollout changes (U3 of the tracker). A way back leaves alone the slots that still have the
 * spec to which it leads; what restarts there is the restart supervisor's, and nothing that the rollout waits for.
 */
import { wasEvicted } from "../../machines/orchestration/enforcer.ts";
import { isWayBack } from "../../machines/orchestration/rollout/status.ts";
import { settingsOf } from "../../machines/orchestration/rollout/settings.ts";
import { Currency } from "../../machines/orchestration/task-currency.ts";
import { isWanted, observedState } from "../../machines/task.ts";
import { timeMs } from "../../proto/time.ts";
import {
  TaskState,
  UpdateConfig_FailureAction,
  UpdateStatus_UpdateState,
  type Service,
  type Task,
} from "../../proto/gen/messages.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";

/** Transactions that a decision may be behind what it was decided on. */
const lag = 40;
/** A leader's clock is read once for each of its steps. */
const toleranceMs = 50;

interface Tally {
  /** The leader that counts: one that follows may count less, as it sees only what the store still has. */
  readonly epoch: number;
  /** Of failed slots: the version at which the first task failed there. */
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
        this.#lookAtTask(change.old, change.object, epoch, commit.version, store);
    }
    return null;
  }

  #lookAtTask(old: Task, task: Task, epoch: number, version: number, store: Store): void {
    const state = observedState(task);
    const hasFailed = state === TaskState.FAILED || state === TaskState.REJECTED;
    // One that ran may have failed after it had been watched.
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
    const settings = settingsOf(service, isWayBack(service));
    const total = store.get("rollout", service.id)?.total ?? 0;
    const failed = [...(this.#tallies.get(service.id)?.failed ?? [])].filter(([, at]) => at < version - lag);
    const specified = isWayBack(service) ? service.spec?.rollback : service.spec?.update;
    const ratio = specified?.maxFailureRatio ?? 0;
    if (settings.action === UpdateConfig_FailureAction.CONTINUE || failed.length === 0) return null;
    if (Math.fround(failed.length / Math.max(1, total)) <= Math.fround(ratio)) return null;
    const names = failed.map(([slot]) => slot).join();
    return `R7: the rollout of ${service.id} is completed though slots ${names} of ${total} failed, and ${ratio} of them may`;
  }
}

/** R8 */
function checkWatched(service: Service, version: number, store: Store): string | null {
  const { monitorMs } = settingsOf(service, isWayBack(service));
  const overMs = timeMs(service.meta?.updatedAt ?? null);
  for (const task of store.tasksByService(service.id)) {
    if (!isWanted(task) || observedState(task) !== TaskState.RUNNING || !isPart(task, service, store)) continue;
    if ((task.meta?.version?.index ?? 0) > version - lag && monitorMs === 0) continue;
    const ranMs = overMs - timeMs(task.status?.appliedAt ?? null);
    if (ranMs < monitorMs - toleranceMs)
      return `R8: the rollout of ${service.id} is completed when ${task.id} has run for ${ranMs} ms of ${monitorMs}`;
  }
  return null;
}

/** It is of the present spec, and its slot had a task of another: one of another version may have asked for the same. */
function isPart(task: Task, service: Service, store: Store): boolean {
  if (versionOf(task) !== versionOf(service)) return false;
  const currency = new Currency();
  const fellows =
    task.slot === 0 ? store.tasksAt(task.serviceId, 0, task.nodeId) : store.tasksBySlot(task.serviceId, task.slot);
  for (const other of fellows)
    if (other.desiredState < TaskState.REMOVE && currency.isOutdated(other, service, (id) => store.get("node", id)))
      return true;
  return false;
}

/** An update, a way back or what was paused begins. */
function isBegun(old: Service, service: Service): boolean {
  return versionOf(old) !== versionOf(service) || old.updateStatus?.state !== service.updateStatus?.state;
}

function versionOf(object: { readonly specVersion: { readonly index: number } | null }): number {
  return object.specVersion?.index ?? 0;
}

function slotOf({ nodeId, slot }: Task): string {
  return slot === 0 ? nodeId : String(slot);
}
