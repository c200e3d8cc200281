/**
 * The durable state of a rollout: the service's UpdateStatus and the rollout's record, the phase that they define, and the
 * transitions between phases. Pure; callers write both in one transaction.
 *
 * D1: the record belongs to the UpdateStatus that started with it; a record of an earlier rollout is ignored.
 * D2: a rollback restores the previous spec; if that does not exist, or can no longer be used, the rollout pauses with that
 *     reason.
 * D3: a rollback that fails or is stopped by an operator stays `rollback paused`.
 * D4: only the failure of a requested update rolls a service back. A rollout that starts late, because a node changes long
 *     after the last update was over, is not a requested update.
 */
import { specVersionOf } from "../../task.ts";
import {
  Rollout,
  RolloutStep,
  Service,
  UpdateStatus,
  UpdateStatus_UpdateState,
  type Timestamp,
} from "../../../proto/gen/messages.ts";
import { refuse, type Refusal } from "../../refusal.ts";
import { durationMs, durationOf, timeMs, timestampOf } from "../../../proto/time.ts";
import { deadlineMsOf, settingsOf, type RolloutWork } from "./settings.ts";
import { blockerText, type Blocker } from "./verdict.ts";

export type RolloutPhase =
  | "none"
  | "updating"
  | "stepping"
  | "paused"
  | "completed"
  | "rolling back"
  | "rollback stepping"
  | "rollback paused"
  | "rollback completed";

/** What to write; null: unchanged. */
export interface RolloutWrite {
  readonly service: Service | null;
  readonly rollout: Rollout | null;
}

const { UPDATING, PAUSED, COMPLETED, ROLLBACK_STARTED, ROLLBACK_PAUSED, ROLLBACK_COMPLETED } = UpdateStatus_UpdateState;

const inProgress = (isRollback: boolean): string => `${isRollback ? "rollback" : "update"} in progress`;
const rolledBackPrefix = "update rolled back";
/** Separates a rollout's UpdateStatus message from what it waits for. */
const waiting = ": waiting for ";

/**
 * A rollout that starts within this time after a change of the service counts as requested, in milliseconds: a leader sees the
 * change at once, and a new leader within seconds.
 */
const promptMsMax = 60_000;

/**
 * Minimum interval between updates of the message about a blocked rollout, in milliseconds: each is a new version of the
 * service.
 */
const noticeEveryMs = 30_000;

/** Characters of a task's error that a message quotes. */
const wordsMax = 300;

/** Whether the service's update status is that of a rollback: started, paused or completed. */
export function hasRollbackStatus(service: Service): boolean {
  const state = service.updateStatus?.state;
  return state === ROLLBACK_STARTED || state === ROLLBACK_PAUSED || state === ROLLBACK_COMPLETED;
}

function isSameTime(a: Timestamp | null, b: Timestamp | null): boolean {
  return a?.seconds === b?.seconds && a?.nanos === b?.nanos;
}

/** The record that belongs to the service's UpdateStatus (D1); null if there is none. */
export function recordOf(service: Service, stored: Rollout | undefined): Rollout | null {
  if (stored === undefined || service.updateStatus === null) return null;
  const isOurs =
    (stored.target?.index ?? 0) === specVersionOf(service) &&
    stored.isRollback === hasRollbackStatus(service) &&
    isSameTime(stored.startedAt, service.updateStatus.startedAt);
  return isOurs ? stored : null;
}

/** `record`: from `recordOf`; only the record distinguishes steps from an update that continues by itself. */
export function phaseOf(service: Service, record: Rollout | null): RolloutPhase {
  const isStepping = record !== null && record.step !== RolloutStep.ROLLOUT_STEP_NONE;
  switch (service.updateStatus?.state) {
    case UPDATING:
      return isStepping ? "stepping" : "updating";
    case PAUSED:
      return "paused";
    case COMPLETED:
      return "completed";
    case ROLLBACK_STARTED:
      return isStepping ? "rollback stepping" : "rolling back";
    case ROLLBACK_PAUSED:
      return "rollback paused";
    case ROLLBACK_COMPLETED:
      return "rollback completed";
    default:
      return "none";
  }
}

/** Slots may change in this phase. */
export function isMoving(phase: RolloutPhase): boolean {
  return phase === "updating" || phase === "stepping" || phase === "rolling back" || phase === "rollback stepping";
}

/** No rollout is in progress, so another may start. */
export function isOver(phase: RolloutPhase): boolean {
  return phase === "none" || phase === "completed" || phase === "rollback completed";
}

/** The rollout waits for an operator. */
export function isPaused(phase: RolloutPhase): boolean {
  return phase === "paused" || phase === "rollback paused";
}

/** Whether a rollback is in progress: after a completed one, a new rollout is an update. */
export function isRollback({ updateStatus }: Service): boolean {
  return updateStatus?.state === ROLLBACK_STARTED || updateStatus?.state === ROLLBACK_PAUSED;
}

function recordBasis(record: Rollout | null): string {
  const times = [record?.startedAt, record?.countedSince, record?.deadline].map((time) => timeMs(time ?? null));
  return [record?.target?.index ?? 0, ...times, record?.step ?? 0, record?.batch.length ?? 0].join(" ");
}

/** The inputs of a tracker: the spec, the direction, the start of the rollout, and how much of it may proceed. */
export function basisOf(service: Service, record: Rollout | null): string {
  const direction = isRollback(service) ? "rollback" : "update";
  return `${specVersionOf(service)} ${direction} ${recordBasis(record)}`;
}

/** Whether only counts or the blocking task differ. */
export function isSameBasis(a: Rollout, b: Rollout): boolean {
  return recordBasis(a) === recordBasis(b);
}

function withStatus(service: Service, fields: Partial<UpdateStatus>): Service {
  return Service.patch(service, {
    updateStatus: UpdateStatus.patch(service.updateStatus ?? UpdateStatus.create(), fields),
  });
}

function deadlineOf(service: Service, isRollback: boolean, work: RolloutWork, nowMs: number): Timestamp {
  return timestampOf(nowMs + deadlineMsOf(settingsOf(service, isRollback), work));
}

/** D4 */
function beginsLate({ meta, updateStatus }: Service, nowMs: number): boolean {
  return updateStatus !== null || nowMs - timeMs(meta?.updatedAt ?? null) > promptMsMax;
}

/** D4. Why a failed update is paused rather than rolled back; continues `update paused`. */
export function notRolledBack(failed: { why: string; wantsRollback: boolean }): string {
  return failed.wantsRollback ? `${failed.why}; not rolled back, because no update was requested` : failed.why;
}

/** Starts a rollout; keeps the status if the service's UpdateStatus already says that one is in progress. */
function begun(service: Service, work: RolloutWork, nowMs: number): RolloutWrite {
  const state = service.updateStatus?.state;
  const isBegun = state === UPDATING || state === ROLLBACK_STARTED || state === PAUSED || state === ROLLBACK_PAUSED;
  const after = isBegun
    ? service
    : Service.patch(service, {
        updateStatus: UpdateStatus.create({
          state: UPDATING,
          startedAt: timestampOf(nowMs),
          message: inProgress(false),
        }),
      });
  const isRollback = hasRollbackStatus(after);
  const rollout = Rollout.create({
    id: service.id,
    target: service.specVersion,
    isRollback,
    startedAt: after.updateStatus?.startedAt ?? null,
    countedSince: timestampOf(nowMs),
    deadline: deadlineOf(service, isRollback, work, nowMs),
    total: work.slots,
    longestWait: durationOf(work.waitMsMax),
    late: !isBegun && beginsLate(service, nowMs),
  });
  return { service: isBegun ? null : after, rollout };
}

/** `why`: continues `update paused`, such as ` due to failure …`. */
function paused(service: Service, record: Rollout | null, why: string): RolloutWrite {
  const isRollback = hasRollbackStatus(service);
  const message = `${isRollback ? "rollback" : "update"} paused${why}`;
  return {
    service: withStatus(service, { state: isRollback ? ROLLBACK_PAUSED : PAUSED, message }),
    rollout: record === null ? null : Rollout.patch(record, { ...noStep, blocker: "" }),
  };
}

const noStep = { step: RolloutStep.ROLLOUT_STEP_NONE, batch: [] } as const;

/** D2. The text after `update paused` when a rollback was wanted and `reason` prevents it. */
export function cannotRollBack(why: string, reason: string): string {
  return `${why}; it cannot be rolled back: ${reason}`;
}

/** D2. The rollback's record is written later, when the rollback begins. */
function rolledBack(service: Service, record: Rollout | null, why: string): RolloutWrite {
  if (service.previousSpec === null) return paused(service, record, cannotRollBack(why, "there is no previous spec"));
  const back = Service.patch(service, {
    spec: service.previousSpec,
    specVersion: service.previousSpecVersion,
    previousSpec: null,
    previousSpecVersion: null,
  });
  return {
    service: withStatus(back, { state: ROLLBACK_STARTED, message: `${rolledBackPrefix}${why}`, completedAt: null }),
    rollout: null,
  };
}

function completed(service: Service, record: Rollout | null, nowMs: number): RolloutWrite {
  const isRollback = hasRollbackStatus(service);
  const failures = record?.failures ?? 0;
  const remark = failures === 0 ? "" : `; ${failures} ${failures === 1 ? "task" : "tasks"} failed`;
  // The status alone still tells later readers why it was rolled back.
  const why = reasonOf(service);
  return {
    service: withStatus(service, {
      state: isRollback ? ROLLBACK_COMPLETED : COMPLETED,
      message: `${isRollback ? "rollback" : "update"} completed${remark}${why === "" ? "" : `; ${why}`}`,
      completedAt: timestampOf(nowMs),
    }),
    rollout: record === null ? null : Rollout.patch(record, { ...noStep, blocker: "" }),
  };
}

/** The batch of a step. */
function stepChosen(record: Rollout, batch: readonly string[]): RolloutWrite {
  return { service: null, rollout: Rollout.patch(record, { step: RolloutStep.ROLLOUT_STEP_CHOSEN, batch }) };
}

/** A decision of the leader's rollout. `why`: see `paused`. */
export type RolloutDecision =
  | { readonly kind: "begin"; readonly work: RolloutWork }
  | { readonly kind: "pause" | "roll back"; readonly why: string }
  | { readonly kind: "complete" }
  | { readonly kind: "choose"; readonly batch: readonly string[] };

/** Null if the decision does not apply to the stored state. `record`: with what was counted since it was stored. */
export function decided(
  decision: RolloutDecision,
  service: Service,
  record: Rollout | null,
  nowMs: number,
): RolloutWrite | null {
  const moves = isMoving(phaseOf(service, record));
  if (decision.kind === "begin") return moves && record !== null ? null : begun(service, decision.work, nowMs);
  if (!moves) return null;
  switch (decision.kind) {
    case "pause":
      return paused(service, record, decision.why);
    case "roll back":
      return rolledBack(service, record, decision.why);
    case "complete":
      return completed(service, record, nowMs);
    case "choose":
      return record === null || decision.batch.length === 0 ? null : stepChosen(record, decision.batch);
  }
}

/**
 * Records counts and what blocks the rollout, for the next leader and for readers of the service; null if there is nothing new.
 * `counted`: the record with the present counts. `quietMs`: time since the service was last changed for this.
 */
export function noted(
  service: Service,
  record: Rollout,
  counted: Rollout,
  held: Blocker | null,
  quietMs: number,
): RolloutWrite | null {
  const blocker = held === null ? "" : blockerText(held);
  const isNews = blocker !== record.blocker && (blocker === "" || quietMs >= noticeEveryMs);
  if (!isNews) return counted.failures === record.failures ? null : { service: null, rollout: counted };
  const message = progressMessage(service, blocker);
  return { service: withStatus(service, { message }), rollout: Rollout.patch(counted, { blocker }) };
}

export type RolloutAction = "pause" | "resume" | "step" | "abort";

type RolloutOutcome =
  | { readonly kind: "write"; readonly write: RolloutWrite }
  /** The requested state is already reached. */
  | { readonly kind: "done" }
  | { readonly kind: "refused"; readonly refusal: Refusal };

const done: RolloutOutcome = { kind: "done" };

function write(what: RolloutWrite): RolloutOutcome {
  return { kind: "write", write: what };
}

/** The result of an operator's action in each phase. */
export function acted(
  service: Service,
  stored: Rollout | undefined,
  action: RolloutAction,
  nowMs: number,
): RolloutOutcome {
  const record = recordOf(service, stored);
  const phase = phaseOf(service, record);
  if (isOver(phase)) {
    const name = service.spec?.annotations?.name ?? service.id;
    return {
      kind: "refused",
      refusal: refuse("failed-precondition", `service ${name} has no update or rollback in progress`),
    };
  }
  switch (action) {
    case "pause":
      return isPaused(phase) ? done : write(paused(service, record, " by an operator"));
    case "resume":
      return phase === "updating" || phase === "rolling back" ? done : write(resumed(service, record, nowMs));
    case "step":
      return phase === "stepping" || phase === "rollback stepping" ? done : write(stepped(service, record, nowMs));
    case "abort":
      // D3
      if (hasRollbackStatus(service))
        return isPaused(phase) ? done : write(paused(service, record, " by an operator, who aborted it"));
      if (service.previousSpec === null) {
        return isPaused(phase)
          ? {
              kind: "refused",
              refusal: refuse("failed-precondition", `service ${service.id} does not have a previous spec`),
            }
          : write(rolledBack(service, record, " by an operator, who aborted it"));
      }
      return write(rolledBack(service, record, ": an operator aborted it"));
  }
}

/** The reason of a rollback from its UpdateStatus; empty if it has none. */
function reasonOf(service: Service): string {
  const [said = ""] = (service.updateStatus?.message ?? "").split(waiting);
  return hasRollbackStatus(service) && said.startsWith(rolledBackPrefix) ? said : "";
}

/**
 * The UpdateStatus message of a rollout in progress; a rollback keeps its reason. `blocker`: what it waits for; empty: nothing
 * worth reporting.
 */
function progressMessage(service: Service, blocker: string): string {
  const why = reasonOf(service);
  const how = why === "" ? inProgress(hasRollbackStatus(service)) : why;
  return blocker === "" ? how : `${how}${waiting}${blocker}`;
}

/** The rollout continues with a new failure budget and a new deadline. */
function resumed(service: Service, record: Rollout | null, nowMs: number): RolloutWrite {
  const isRollback = hasRollbackStatus(service);
  return {
    service: withStatus(service, {
      state: isRollback ? ROLLBACK_STARTED : UPDATING,
      message: inProgress(isRollback),
    }),
    rollout: record === null ? null : Rollout.patch(record, { ...renewed(service, record, nowMs), ...noStep }),
  };
}

function renewed(service: Service, record: Rollout, nowMs: number): Partial<Rollout> {
  const work = { slots: record.total, waitMsMax: durationMs(record.longestWait, 0) };
  return {
    failures: 0,
    failedSlots: 0,
    countedSince: timestampOf(nowMs),
    deadline: deadlineOf(service, record.isRollback, work, nowMs),
  };
}

function stepped(service: Service, record: Rollout | null, nowMs: number): RolloutWrite {
  const isRollback = hasRollbackStatus(service);
  const from = record ?? (begun(service, { slots: 0, waitMsMax: 0 }, nowMs).rollout as Rollout);
  return {
    service: withStatus(service, {
      state: isRollback ? ROLLBACK_STARTED : UPDATING,
      message: `${inProgress(isRollback)} (one step)`,
    }),
    rollout: Rollout.patch(from, {
      ...renewed(service, from, nowMs),
      step: RolloutStep.ROLLOUT_STEP_ASKED,
      batch: [],
    }),
  };
}

/** ` due to failure or early termination of task <id>` (SwarmKit's words), and the reason if there is one. */
export function dueTo(taskId: string, reason: string): string {
  const text = reason.length > wordsMax ? `${reason.slice(0, wordsMax)}…` : reason;
  return ` due to failure or early termination of task ${taskId}${text === "" ? "" : `: ${text}`}`;
}
