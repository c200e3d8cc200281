/**
 * What must hold of rollouts, beside `invariants.ts`.
 *
 * A slot is also a global service's node, but for R2.
 *
 * R1: a stop-first service never has a task of a slot RUNNING while another of that slot may run, but for one on a node
 *     that was lost, or that did not stop within the minute that it has.
 * R2: no more slots are between two specs than the parallelism, where no failure is tolerated.
 * R3: start-first stops an old task that runs only once the new one does.
 * R4: a rollback leads to the spec before, and is completed when every task has it, but those that were being made when it
 *     began.
 * R5: once nothing fails any more, each rollout ends, within its deadline: completed, paused or rolled back. Where leaders' clocks
 *     were set the deadline in the log is that of a wrong clock, and only the bound of L3 holds.
 * R6: nothing but the failure of an update that somebody asked for turns a service back by itself.
 */
import { isMoving, isPaused, phaseOf, recordOf } from "../../machines/orchestration/rollout/status.ts";
import { faultOf } from "../../machines/orchestration/restart.ts";
import { isSameMessage } from "../../machines/same-message.ts";
import { isUpToDate } from "../../machines/orchestration/task-currency.ts";
import { isEnded, isHeld, isSpent, isWanted, observedState } from "../../machines/task.ts";
import { timeMs } from "../../proto/time.ts";
import {
  NodeStatus_State,
  TaskState,
  UpdateConfig_FailureAction,
  UpdateConfig_UpdateOrder,
  UpdateStatus_UpdateState,
  type Service,
  type Task,
} from "../../proto/gen/messages.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";
import { refusedPayload, stuckPayload } from "./workload-rollout.ts";

/** As machines/orchestration/restart.ts bounds the wait for a predecessor, and what clocks may differ by, in milliseconds. */
const stopWaitMs = 60_000;
const skewMs = 35_000;
/** Commits that a decision may be behind what it was decided on. */
const lag = 40;

export class RolloutChecks {
  /** Version of the log at which each node was last seen DOWN, or gone. */
  readonly #lost = new Map<string, number>();
  readonly #made = new Map<string, number>();
  /** Version at which each task was first seen RUNNING. */
  readonly #running = new Map<string, number>();
  /** Services whose last update that somebody asked for is over. */
  readonly #over = new Set<string>();

  check(commit: Commit, store: Store): string | null {
    for (const change of commit.changes) {
      if (change.table === "node") {
        const isGone = change.action === "remove" || change.object.status?.state === NodeStatus_State.DOWN;
        if (isGone || change.old?.status?.state === NodeStatus_State.DOWN)
          this.#lost.set(change.object.id, commit.version);
      }
      if (change.table !== "task" || change.action === "remove") continue;
      const { id } = change.object;
      if (change.action === "create") this.#made.set(id, commit.version);
      if (observedState(change.object) === TaskState.RUNNING && !this.#running.has(id))
        this.#running.set(id, commit.version);
    }
    for (const change of commit.changes) {
      if (change.table === "service" && change.action === "update" && change.old !== null) {
        const isNew = (task: Task): boolean => (this.#made.get(task.id) ?? 0) > commit.version - lag;
        const claim =
          checkWayBack(change.old, change.object, store, isNew) ?? this.#checkAsked(change.old, change.object);
        if (claim !== null) return claim;
      }
      if (change.table !== "task" || change.action === "remove") continue;
      const { object: task, old } = change;
      const service = store.get("service", task.serviceId);
      if (service?.spec?.replicated == null && service?.spec?.global == null) continue;
      const claim =
        change.action === "create"
          ? checkParallelism(service, task, store)
          : (this.#checkStopFirst(service, task, old, store) ??
            this.#checkStartFirst(commit, service, task, old, store));
      if (claim !== null) return claim;
    }
    return null;
  }

  /** R1 */
  #checkStopFirst(service: Service, task: Task, old: Task | null, store: Store): string | null {
    if (orderOf(service) !== UpdateConfig_UpdateOrder.STOP_FIRST) return null;
    if (observedState(task) !== TaskState.RUNNING || old === null || observedState(old) === TaskState.RUNNING)
      return null;
    for (const other of fellows(task, store)) {
      if (other.id === task.id || !isHeld(observedState(other)) || observedState(other) < TaskState.STARTING) continue;
      // Both wanted: that is S1's.
      if (isWanted(other)) continue;
      const madeMs = timeMs(task.meta?.createdAt ?? null);
      if (timeMs(task.meta?.updatedAt ?? null) - madeMs > stopWaitMs - skewMs) continue;
      if (this.#mayBeLost(other) || this.#mayBeLost(task)) continue;
      return `R1: slot ${slotOf(task)} of ${task.serviceId} runs ${task.id} while ${other.id} has not stopped`;
    }
    return null;
  }

  /** Its node was lost; or nobody here knows: who started with a snapshot that has the task leaves that to others. */
  #mayBeLost({ id, nodeId }: Task): boolean {
    const made = this.#made.get(id);
    return made === undefined || (this.#lost.get(nodeId) ?? -1) >= made;
  }

  /** R6. A rollback that begins by itself leaves nothing to be rolled back to. */
  #checkAsked(old: Service, service: Service): string | null {
    const { COMPLETED, ROLLBACK_COMPLETED, ROLLBACK_STARTED } = UpdateStatus_UpdateState;
    const [before, state] = [old.updateStatus?.state, service.updateStatus?.state];
    if (state === COMPLETED || state === ROLLBACK_COMPLETED) this.#over.add(service.id);
    if (isSameMessage(service.spec, old.spec)) return null;
    const isByItself = state === ROLLBACK_STARTED && before !== ROLLBACK_STARTED && service.previousSpec === null;
    if (isByItself && this.#over.has(service.id))
      return `R6: service ${service.id} is rolled back, and nobody had asked for an update since the last was over`;
    if (!isByItself) this.#over.delete(service.id);
    return null;
  }

  /** R3 */
  #checkStartFirst(commit: Commit, service: Service, task: Task, old: Task | null, store: Store): string | null {
    if (orderOf(service) !== UpdateConfig_UpdateOrder.START_FIRST || old === null) return null;
    const isStopped = isWanted(old) && task.desiredState === TaskState.SHUTDOWN;
    if (!isStopped || observedState(task) !== TaskState.RUNNING) return null;
    // One that does not run yet need not wait for another: that it does by now was on its way.
    if (commit.version - (this.#running.get(task.id) ?? commit.version) < lag) return null;
    if (faultOf(task, (id) => store.get("node", id)) !== null) return null;
    for (const other of fellows(task, store)) {
      if (other.id === task.id) continue;
      if (observedState(other) === TaskState.RUNNING) return null;
      // It ended, or was lost, while the decision was on its way.
      const isRecent = commit.version - (other.meta?.version?.index ?? 0) < lag;
      if (isEnded(observedState(other)) && isRecent) return null;
    }
    return `R3: ${task.id} in slot ${slotOf(task)} of ${task.serviceId} is stopped before another runs`;
  }
}

/** A slot of it may have two tasks, of different specs. */
export function startsFirst(service: Service | undefined): boolean {
  const { rollback, update } = service?.spec ?? {};
  const { START_FIRST } = UpdateConfig_UpdateOrder;
  return update?.order === START_FIRST || rollback?.order === START_FIRST;
}

function orderOf(service: Service): UpdateConfig_UpdateOrder | null {
  const { rollback, update } = service.spec ?? {};
  const [there, back] = [update?.order ?? 0, rollback?.order ?? 0];
  return there === back ? there : null;
}

function versionOf(object: { readonly specVersion: { readonly index: number } | null }): number {
  return object.specVersion?.index ?? 0;
}

/** R2, when a slot is taken. */
function checkParallelism(service: Service, made: Task, store: Store): string | null {
  // A node that joins or comes back takes its task at once, whosever turn it is.
  if (service.spec?.global != null) return null;
  const record = recordOf(service, store.get("rollout", service.id));
  if (!isMoving(phaseOf(service, record)) || versionOf(made) !== versionOf(service)) return null;
  const config = record?.isRollback === true ? service.spec?.rollback : service.spec?.update;
  const parallelism = config?.parallelism ?? 1;
  const isTolerant =
    (config?.maxFailureRatio ?? 0) > 0 || config?.failureAction === UpdateConfig_FailureAction.CONTINUE;
  if (record === null || parallelism === 0 || isTolerant) return null;
  const slots = Map.groupBy(store.tasksByService(service.id), ({ slot }) => slot);
  if (!isChanging(service, slots.get(made.slot) ?? [])) return null;
  const changing = [...slots].filter(([, tasks]) => isChanging(service, tasks)).map(([slot]) => slot);
  if (changing.length <= parallelism) return null;
  return `R2: slots ${changing.join()} of ${service.id} change at once, ${parallelism} may`;
}

/** Those of one slot; of a global service, of one node. */
function fellows(task: Task, store: Store): Iterable<Task> {
  return task.slot === 0 ? store.tasksAt(task.serviceId, 0, task.nodeId) : store.tasksBySlot(task.serviceId, task.slot);
}

function slotOf({ nodeId, slot }: Task): number | string {
  return slot === 0 ? nodeId : slot;
}

/** Its only task of the present spec is on its way, and it had one of another before. */
function isChanging(service: Service, tasks: readonly Task[]): boolean {
  const here = tasks.filter((task) => task.desiredState < TaskState.REMOVE);
  // An update of something else gives the same spec another version.
  const current = here.filter((task) => isUpToDate(task, service));
  const [only] = current;
  if (only === undefined || current.length > 1 || current.length === here.length) return false;
  return isWanted(only) && observedState(only) < TaskState.RUNNING;
}

/** R4 */
function checkWayBack(old: Service, service: Service, store: Store, isNew: (task: Task) => boolean): string | null {
  const { ROLLBACK_COMPLETED, ROLLBACK_STARTED, ROLLBACK_PAUSED } = UpdateStatus_UpdateState;
  const [before, state] = [old.updateStatus?.state, service.updateStatus?.state];
  if (state === ROLLBACK_STARTED && before !== ROLLBACK_STARTED && before !== ROLLBACK_PAUSED) {
    if (!isSameMessage(service.spec, old.previousSpec))
      return `R4: service ${service.id} is rolled back to something else than its previous spec`;
  }
  if (state !== ROLLBACK_COMPLETED || before === ROLLBACK_COMPLETED) return null;
  if ((store.get("rollout", service.id)?.failures ?? 0) > 0) return null;
  for (const task of store.tasksByService(service.id)) {
    if (!isWanted(task) || isSpent(observedState(task)) || isNew(task)) continue;
    if (!isSameMessage(task.spec, service.spec?.task ?? null))
      return `R4: the rollback of ${service.id} is completed, and task ${task.id} has another spec`;
  }
  return null;
}

/** Its tasks never run for long, some may have used up their attempts, or it is paused: no matter how many tasks run. */
export function isHopeless(service: Service): boolean {
  if ((service.spec?.task?.restart?.maxAttempts ?? 0) > 0) return true;
  const kind = service.spec?.task?.generic?.payload?.value[0];
  return kind === refusedPayload || kind === stuckPayload || isPaused(phaseOf(service, null));
}

/**
 * R5: why a rollout is not over, or null. `nowMs`: in milliseconds since the epoch; null where leaders' clocks were set, which
 * deadlines in the log say nothing of.
 */
export function findMovingRollout(store: Store, nowMs: number | null): string | null {
  for (const service of store.all("service")) {
    const record = recordOf(service, store.get("rollout", service.id));
    const phase = phaseOf(service, record);
    if (!isMoving(phase)) continue;
    const lateMs = record === null || nowMs === null ? 0 : nowMs - timeMs(record.deadline);
    const late = lateMs > skewMs ? `, ${Math.round(lateMs)} ms after its deadline` : "";
    return `R5: the rollout of ${service.id} is ${phase}${late}`;
  }
  return null;
}

/** R5: a rollout that has outlived its deadline, by more than clocks may differ. */
export function isOverdue(reason: string): boolean {
  return reason.includes("R5") && reason.includes("after its deadline");
}
