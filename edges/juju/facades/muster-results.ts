/** Converts replies of the Operator service for the JSON API's clients. */
import type {
  ControlRolloutResponse,
  PlanRebalanceResponse,
  PlanServiceResponse,
  Timestamp,
} from "../../../proto/gen/messages.ts";
import { applicationName } from "../entities/names.ts";
import type { Json } from "../results.ts";

/** RFC 3339 with milliseconds; null without a time. */
export function timeText(time: Timestamp | null): string | null {
  return time === null ? null : new Date(time.seconds * 1_000 + Math.floor(time.nanos / 1e6)).toISOString();
}

export function planResult(plan: PlanServiceResponse): Json {
  const { created, kept, name, nodes, notes, removed, replaced, steps, stepsOmitted, waits } = plan;
  return {
    name,
    created,
    replaced,
    removed,
    kept,
    steps: steps.map((step) => ({
      kind: step.kind,
      slot: step.slot,
      batch: step.batch,
      "task-id": step.taskId,
      "from-instance-id": step.fromNodeId,
      "from-name": step.fromNodeName,
      "instance-id": step.nodeId,
      name: step.nodeName,
      reasons: step.reasons,
    })),
    "steps-omitted": stepsOmitted,
    nodes: nodes.map(({ id, name: node, before, after }) => ({ "instance-id": id, name: node, before, after })),
    waits: waits.map(({ tasks, text, nodes: named }) => ({ tasks, text, nodes: named })),
    notes,
  };
}

export function rolloutResult(answer: ControlRolloutResponse): Json {
  const { blockers, changing, done, failed, name, phase, rollout, updateStatus, waiting } = answer;
  return {
    name,
    phase,
    message: updateStatus?.message ?? "",
    started: timeText(updateStatus?.startedAt ?? null),
    completed: timeText(updateStatus?.completedAt ?? null),
    deadline: timeText(rollout?.deadline ?? null),
    failures: rollout?.failures ?? 0,
    total: rollout?.total ?? 0,
    waiting,
    changing,
    done,
    failed,
    blockers: blockers.map(({ taskId, slot, state, reason, since, deadline }) => ({
      "task-id": taskId,
      slot,
      state,
      reason,
      since: timeText(since),
      deadline: timeText(deadline),
    })),
  };
}

export function rebalanceResult(plan: PlanRebalanceResponse): Json {
  const { isPartial, moves, movesLeft, phase, reasons, window } = plan;
  return {
    phase,
    moves: moves.map((move) => ({
      round: move.round,
      application: applicationName(move.serviceName || move.serviceId),
      slot: move.slot,
      "task-id": move.taskId,
      "from-instance-id": move.fromNodeId,
      "from-name": move.fromNodeName,
      "instance-id": move.nodeId,
      name: move.nodeName,
      order: move.order,
      why: move.why,
    })),
    "is-partial": isPartial,
    "moves-left": movesLeft,
    "window-seconds": window?.seconds ?? 0,
    reasons: reasons.map(({ waitingFor, since, wokenBy, deadline, tried }) => ({
      "waiting-for": waitingFor,
      since: timeText(since),
      "woken-by": wokenBy,
      deadline: timeText(deadline),
      tried,
    })),
  };
}
