/**
 * Invariants of rollouts, in addition to `invariants.ts`.
 *
 * A slot also means a node of a global service, except in R2.
 *
 * R1: a stop-first service never has a RUNNING task in a slot while another task of that slot may run, except one on a lost
 *     node or one that did not stop within its minute.
 * R2: at most as many slots as the parallelism are between two specs that tolerate no failure.
 * R3: start-first stops a running old task only after the new one runs.
 * R4: a rollback leads to the previous spec, and completes when every task has it, except tasks that were being created when
 *     it began.
 * R5: after the last fault, each rollout ends within its deadline: completed, paused or rolled back. Where leaders' clocks
 *     jumped, the deadline in the log is that of a wrong clock, and only the bound of L3 applies.
 * R6: only the failure of a requested update rolls a service back automatically.
 */
import { isMoving, isPaused, phaseOf, recordOf } from "../../machines/orchestration/rollout/status.ts";
import { faultOf } from "../../machines/orchestration/restart.machine.ts";
import { isSameMessage } from "../../machines/same-message.ts";
import { isUpToDate } from "../../machines/orchestration/task-dirty.ts";
import { isEnded, isHeld, isLeaving, isSpent, isWanted, observedState, specVersionOf } from "../../machines/task.ts";
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
import { refusedPayload, stuckPayload } from "../workloads/rollout.ts";

/** The bound on waiting for a predecessor in machines/orchestration/restart.machine.ts, plus clock differences, in milliseconds. */
const stopWaitMs = 60_000;
const skewMs = 35_000;
/** Commits by which a decision may lag behind its basis. */
const lag = 40;

export class RolloutChecks {
  /** Version at which each node was last seen DOWN or removed. */
  readonly #lost = new Map<string, number>();
  readonly #made = new Map<string, number>();
  /** Version at which each task was first seen RUNNING. */
  readonly #running = new Map<string, number>();
  /** Services whose last requested update has ended. */
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
          checkRollback(change.old, change.object, store, isNew) ?? this.#checkAsked(change.old, change.object);
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
      // Two wanted tasks violate S1 instead.
      if (isWanted(other)) continue;
      const madeMs = timeMs(task.meta?.createdAt ?? null);
      if (timeMs(task.meta?.updatedAt ?? null) - madeMs > stopWaitMs - skewMs) continue;
      if (this.#mayBeLost(other) || this.#mayBeLost(task)) continue;
      return `R1: slot ${slotOf(task)} of ${task.serviceId} runs ${task.id} while ${other.id} has not stopped`;
    }
    return null;
  }

  /** Its node was lost, or unknown: a checker that started with a snapshot containing the task leaves it to the others. */
  #mayBeLost({ id, nodeId }: Task): boolean {
    const made = this.#made.get(id);
    return made === undefined || (this.#lost.get(nodeId) ?? -1) >= made;
  }

  /** R6. An automatic rollback leaves no previous spec to roll back to. */
  #checkAsked(old: Service, service: Service): string | null {
    const { COMPLETED, ROLLBACK_COMPLETED, ROLLBACK_STARTED } = UpdateStatus_UpdateState;
    const [before, state] = [old.updateStatus?.state, service.updateStatus?.state];
    if (state === COMPLETED || state === ROLLBACK_COMPLETED) this.#over.add(service.id);
    if (isSameMessage(service.spec, old.spec)) return null;
    const isByItself = state === ROLLBACK_STARTED && before !== ROLLBACK_STARTED && service.previousSpec === null;
    if (isByItself && this.#over.has(service.id))
      return `R6: service ${service.id} is rolled back without a requested update since the last one ended`;
    if (!isByItself) this.#over.delete(service.id);
    return null;
  }

  /** R3 */
  #checkStartFirst(commit: Commit, service: Service, task: Task, old: Task | null, store: Store): string | null {
    if (orderOf(service) !== UpdateConfig_UpdateOrder.START_FIRST || old === null) return null;
    const isStopped = isWanted(old) && task.desiredState === TaskState.SHUTDOWN;
    if (!isStopped || observedState(task) !== TaskState.RUNNING) return null;
    // A task that did not run at the decision need not wait; it may have started since.
    if (commit.version - (this.#running.get(task.id) ?? commit.version) < lag) return null;
    if (faultOf(task, (id) => store.get("node", id)) !== null) return null;
    for (const other of fellows(task, store)) {
      if (other.id === task.id) continue;
      if (observedState(other) === TaskState.RUNNING) return null;
      // It ended or was lost between the decision and the commit.
      const isRecent = commit.version - (other.meta?.version?.index ?? 0) < lag;
      if (isEnded(observedState(other)) && isRecent) return null;
    }
    return `R3: ${task.id} in slot ${slotOf(task)} of ${task.serviceId} is stopped before another runs`;
  }
}

/** Whether a slot may have two tasks, of different specs. */
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

/** R2, when a slot starts to change. */
function checkParallelism(service: Service, made: Task, store: Store): string | null {
  // A node that joins or comes back gets its task at once, without a turn.
  if (service.spec?.global != null) return null;
  const record = recordOf(service, store.get("rollout", service.id));
  if (!isMoving(phaseOf(service, record)) || specVersionOf(made) !== specVersionOf(service)) return null;
  const config = record?.isRollback === true ? service.spec?.rollback : service.spec?.update;
  const parallelism = config?.parallelism ?? 1;
  const isTolerant =
    (config?.maxFailureRatio ?? 0) > 0 || config?.failureAction === UpdateConfig_FailureAction.CONTINUE;
  if (record === null || parallelism === 0 || isTolerant) return null;
  const slots = Map.groupBy(store.tasksByService(service.id), ({ slot }) => slot);
  if (!isChanging(service, slots.get(made.slot) ?? [])) return null;
  const changing = [...slots].filter(([, tasks]) => isChanging(service, tasks)).map(([slot]) => slot);
  if (changing.length <= parallelism) return null;
  return `R2: slots ${changing.join()} of ${service.id} change at the same time, more than ${parallelism}`;
}

/** Tasks of the same slot, or of the same node for a global service. */
function fellows(task: Task, store: Store): Iterable<Task> {
  return task.slot === 0 ? store.tasksAt(task.serviceId, 0, task.nodeId) : store.tasksBySlot(task.serviceId, task.slot);
}

function slotOf({ nodeId, slot }: Task): number | string {
  return slot === 0 ? nodeId : slot;
}

/** Its only task of the current spec is not RUNNING yet, and the slot had a task of another spec before. */
function isChanging(service: Service, tasks: readonly Task[]): boolean {
  const here = tasks.filter((task) => !isLeaving(task));
  // Updating something else gives the same spec another version.
  const current = here.filter((task) => isUpToDate(task, service));
  const [only] = current;
  if (only === undefined || current.length > 1 || current.length === here.length) return false;
  return isWanted(only) && observedState(only) < TaskState.RUNNING;
}

/** R4 */
function checkRollback(old: Service, service: Service, store: Store, isNew: (task: Task) => boolean): string | null {
  const { ROLLBACK_COMPLETED, ROLLBACK_STARTED, ROLLBACK_PAUSED } = UpdateStatus_UpdateState;
  const [before, state] = [old.updateStatus?.state, service.updateStatus?.state];
  if (state === ROLLBACK_STARTED && before !== ROLLBACK_STARTED && before !== ROLLBACK_PAUSED) {
    if (!isSameMessage(service.spec, old.previousSpec))
      return `R4: service ${service.id} is rolled back, but not to its previous spec`;
  }
  if (state !== ROLLBACK_COMPLETED || before === ROLLBACK_COMPLETED) return null;
  if ((store.get("rollout", service.id)?.failures ?? 0) > 0) return null;
  for (const task of store.tasksByService(service.id)) {
    if (!isWanted(task) || isSpent(observedState(task)) || isNew(task)) continue;
    if (!isSameMessage(task.spec, service.spec?.task ?? null))
      return `R4: the rollback of ${service.id} is completed, but task ${task.id} has another spec`;
  }
  return null;
}

/** Tasks that never run for long, attempts that are used up, or a pause: any number of running tasks is fine. */
export function isHopeless(service: Service): boolean {
  if ((service.spec?.task?.restart?.maxAttempts ?? 0) > 0) return true;
  const kind = service.spec?.task?.generic?.payload?.value[0];
  return kind === refusedPayload || kind === stuckPayload || isPaused(phaseOf(service, null));
}

/**
 * R5: why a rollout has not ended, or null. `nowMs`: in milliseconds since the epoch; null if leaders' clocks jumped, which
 *     makes
 * the deadlines in the log meaningless.
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

/** R5: a rollout that exceeds its deadline by more than clocks may differ. */
export function isOverdue(reason: string): boolean {
  return reason.includes("R5") && reason.includes("after its deadline");
}
