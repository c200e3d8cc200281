/** Explains why a rollout waits: the reason that `muster why SERVICE` gives. */
import { Reason, type Rollout, type Service } from "../../../proto/gen/messages.ts";
import { timestampOf } from "../../../proto/time.ts";
import { waitOf } from "../../wait-meta.ts";
import { rolloutMachine } from "../rollout.machine.ts";
import { isMoving, isPaused, phaseOf } from "./status.ts";
import { blockerText, type Blocker } from "./verdict.ts";

export interface RolloutDescription {
  /** Slots that wait for their turn. */
  readonly waiting: number;
  /** Slots whose new task does not run yet. */
  readonly changing: number;
  /** Slots with a running task of the current spec. */
  readonly done: number;
  /** Slots whose new task failed and was tolerated. */
  readonly failed: number;
  /** Longest-waiting first. */
  readonly blockers: readonly Blocker[];
}

/** Null if there is nothing to wait for. */
export function explainRollout(service: Service, record: Rollout | null, state: RolloutDescription): Reason | null {
  const { blockers, changing, done, failed, waiting } = state;
  const phase = phaseOf(service, record);
  const { message = "", startedAt = null } = service.updateStatus ?? {};
  const total = waiting + changing + done + failed;
  const left = `the rollout: ${waiting} of ${total} tasks have an earlier spec`;
  if (isPaused(phase)) {
    const { wokenBy } = waitOf(rolloutMachine, phase === "paused" ? "update.paused" : "rollback.paused");
    return Reason.create({ since: startedAt, waitingFor: `${left}; ${message}`, wokenBy });
  }
  if (!isMoving(phase)) {
    if (waiting === 0) return null;
    return Reason.create({ waitingFor: `${left}; it is starting`, wokenBy: "its first round, due at once" });
  }
  const [first] = blockers;
  const counted = (record?.failures ?? 0) > 0 ? `, ${record?.failures} failed` : "";
  const held = first === undefined ? "" : `; ${blockerText(first)}`;
  const isLast = waiting + changing === 0;
  const watched = isLast ? "; monitoring the last ones" : "";
  const moving = first !== undefined ? "replacing" : isLast ? "watching" : "delaying";
  return Reason.create({
    since: first === undefined ? startedAt : timestampOf(first.sinceMs),
    waitingFor: `${left} (${phase}${counted})${held}${watched}`,
    wokenBy: waitOf(rolloutMachine, `update.moving.${moving}`).wokenBy,
    deadline: first?.deadlineMs == null ? (record?.deadline ?? null) : timestampOf(first.deadlineMs),
    tried: message === "" ? [] : [message],
  });
}
