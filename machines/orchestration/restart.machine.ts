/**
 * Restarts: whether a slot whose task is over gets a successor, and when that may start. Everything is derived from the stored
 * tasks of the slot, so that a new leader decides like the old one.
 *
 * Q1: a restart creates a successor in the same slot. A waiting successor is desired READY, is prepared meanwhile, and is
 *     raised to RUNNING here.
 * Q2: the wait's deadline is derived from the successor's creation and the delay of the task that ended.
 * Q3: attempts are counted from the tasks in the slot, since the last change of the service's spec.
 * Q4: a successor waits for a predecessor that still runs, unless its node is lost, for a bounded time.
 * Q5: consecutive refused starts are retried with increasing delays (refused-starts.ts).
 *
 * Unlike SwarmKit, a task that was lost with its node, drained from it or evicted by an enforcer does not count as an attempt:
 * it did not fail. Lost and drained tasks have no restart delay either: a crashed worker's tasks should run elsewhere within
 * seconds. Evicted tasks have one, during which the node stops them.
 *
 *   resting | waiting ──▶ gathering ──▶ deciding ──▶ judged ──▶ resting | waiting ──nextRound──▶ deciding (reconcile.ts)
 */
import {
  RestartPolicy_RestartCondition,
  TaskState,
  type Node,
  type RestartPolicy,
  type Task,
} from "../../proto/gen/messages.ts";
import {
  deciding,
  gathering,
  judged,
  reconciling,
  resting,
  type ReconcileContext,
  type Verdict,
} from "../reconcile.ts";
import { wasEvicted } from "./enforcer.machine.ts";
import { refusedStartDelayMs, refusedInARow } from "./refused-starts.ts";
import { isDrained, isLive } from "../node.ts";
import { isEnded, isHeld, isSpent, isWanted, observedState, specVersionOf } from "../task.ts";
import { durationMs, timeMs } from "../../proto/time.ts";
import { leftOf, type LogTimes } from "../elapsed.ts";

/** SwarmKit's default restart delay, in milliseconds. */
const restartDelayMs = 5_000;
/** SwarmKit's limit for waiting for a predecessor to stop, in milliseconds. */
export const stopWaitMsMin = 60_000;
/** SwarmKit's default time from the stop signal to the kill, in milliseconds. */
const stopGraceMs = 10_000;

export type NodeOf = (id: string) => Node | undefined;

/** Why a wanted task cannot continue; null if it can. `ended`: it ended by itself. */
export type Fault = "ended" | "lost" | "drained" | null;

export function faultOf(task: Task, nodeOf: NodeOf): Fault {
  if (isEnded(observedState(task))) return "ended";
  if (task.nodeId === "") return null;
  const node = nodeOf(task.nodeId);
  if (!isLive(node)) return "lost";
  return isDrained(node) ? "drained" : null;
}

export function conditionOf(policy: RestartPolicy | null): RestartPolicy_RestartCondition {
  return policy === null ? RestartPolicy_RestartCondition.ANY : policy.condition;
}

/** When a task ended, by the leader's clock, or else by its node's. */
function endMs(task: Task): number {
  return timeMs(task.status?.appliedAt ?? task.status?.timestamp ?? null);
}

/** It ended by itself, successfully or not: what restart policies count. */
export function isAttempt(task: Task): boolean {
  return isSpent(observedState(task)) && !wasEvicted(task);
}

/** Restarts before `task` that count against its policy (Q3). `slot`: the slot's tasks, oldest first. */
export function spentAttempts(task: Task, slot: readonly Task[]): number {
  const windowMs = durationMs(task.spec?.restart?.window ?? null, 0);
  const since = windowMs > 0 ? endMs(task) - windowMs : Number.NEGATIVE_INFINITY;
  let spent = 0;
  let successor = task;
  for (let at = slot.indexOf(task) - 1; at >= 0; at -= 1) {
    const earlier = slot[at] as Task;
    if (specVersionOf(earlier) !== specVersionOf(task)) break;
    // The restart happened when the successor was created.
    if (isAttempt(earlier) && timeMs(successor.meta?.createdAt ?? null) > since) spent += 1;
    successor = earlier;
  }
  return spent;
}

/**
 * The tasks that must stay in the slot so that `spentAttempts` of `task` and its successors does not change: at most as many
 * earlier attempts as the policy allows, and with a window only those within it, since windows only move forward. The
 * successor of an attempt shows when the attempt was over. `slot`: the slot's tasks, oldest first.
 */
export function countedFor(task: Task, slot: readonly Task[]): readonly Task[] {
  const policy = task.spec?.restart ?? null;
  const attemptsMax = policy?.maxAttempts ?? 0;
  const windowMs = durationMs(policy?.window ?? null, 0);
  const counted: Task[] = [];
  if (attemptsMax === 0) return counted;
  if (isAttempt(task)) counted.push(task);
  let left = attemptsMax;
  let successor = task;
  for (let at = slot.indexOf(task) - 1; at >= 0 && left > 0; at -= 1) {
    const earlier = slot[at] as Task;
    if (specVersionOf(earlier) !== specVersionOf(task)) break;
    if (windowMs > 0 && timeMs(successor.meta?.createdAt ?? null) <= endMs(task) - windowMs) break;
    if (isAttempt(earlier)) {
      counted.push(earlier);
      if (windowMs > 0) counted.push(successor);
      left -= 1;
    }
    successor = earlier;
  }
  return counted;
}

/** Whether the policy allows a successor of a task that is over. */
export function shouldRestart(task: Task, slot: readonly Task[]): boolean {
  const policy = task.spec?.restart ?? null;
  const condition = conditionOf(policy);
  if (condition === RestartPolicy_RestartCondition.NONE) return false;
  // For a job every condition means on-failure: a successful task is done.
  const isForFailures = condition === RestartPolicy_RestartCondition.ON_FAILURE || task.jobIteration !== null;
  if (isForFailures && observedState(task) === TaskState.COMPLETE) return false;
  const attemptsMax = policy?.maxAttempts ?? 0;
  if (attemptsMax === 0 || !isAttempt(task)) return true;
  return spentAttempts(task, slot) < attemptsMax;
}

/** Milliseconds between the end of `task` and the start of its successor. `slot`: the slot's tasks, oldest first. Q5 */
export function delayAfterMs(task: Task, slot: readonly Task[], nodeOf: NodeOf): number {
  if (!isSpent(observedState(task))) return 0;
  // The successor goes to another node anyway.
  if (isDrained(nodeOf(task.nodeId))) return 0;
  return refusedStartDelayMs(task, restartDelayMsOf(task), refusedInARow(task, slot).length);
}

/** The policy's delay after a task ended by itself, in milliseconds. */
export function restartDelayMsOf(task: Task): number {
  return Math.max(0, durationMs(task.spec?.restart?.delay ?? null, restartDelayMs));
}

/** It runs, or may run, on a node that will report its end (Q4). */
export function isStopping(task: Task, nodeOf: NodeOf): boolean {
  return isHeld(observedState(task)) && isLive(nodeOf(task.nodeId));
}

/**
 * Maximum milliseconds that a successor waits for `task` to stop. Unlike in SwarmKit, never less than the task's own grace
 * period: a database with a long one would otherwise run twice.
 */
export function stopWaitMs(task: Task): number {
  const graceMs = durationMs(task.spec?.container?.stopGracePeriod ?? null, stopGraceMs);
  return Math.max(stopWaitMsMin, graceMs + stopGraceMs);
}

type Release =
  | { readonly kind: "release" }
  /** `untilMs`: when to check again at the latest. `refusals`: consecutive refused starts. */
  | {
      readonly kind: "wait";
      readonly cause: "delay";
      readonly task: Task;
      readonly untilMs: number;
      readonly refusals: number;
    }
  | { readonly kind: "wait"; readonly cause: "predecessor"; readonly task: Task; readonly untilMs: number };

/** Whether a successor with desired state READY may run now (Q2, Q4). `slot`: the slot's tasks, oldest first. */
export function releaseOf(
  successor: Task,
  slot: readonly Task[],
  nowMs: number,
  nodeOf: NodeOf,
  times: LogTimes,
): Release {
  const madeMs = times.madeMs(successor);
  let before: Task | null = null;
  let wait: Extract<Release, { readonly cause: "predecessor" }> | null = null;
  for (const task of slot) {
    if (task === successor || isWanted(task)) continue;
    before = task;
    const untilMs = nowMs + leftOf(madeMs, stopWaitMs(task), nowMs);
    if (isStopping(task, nodeOf) && untilMs > nowMs && (wait === null || untilMs > wait.untilMs)) {
      wait = { kind: "wait", cause: "predecessor", task, untilMs };
    }
  }
  if (before !== null) {
    // The driver may accept the new spec: refusals of an older spec do not prolong the wait. Q5
    const earlier = specVersionOf(before) === specVersionOf(successor) ? slot : [];
    const remainingMs = leftOf(madeMs, delayAfterMs(before, earlier, nodeOf), nowMs);
    if (remainingMs > 0) {
      const refusals = refusedInARow(before, earlier).length;
      return { kind: "wait", cause: "delay", task: before, untilMs: nowMs + remainingMs, refusals };
    }
  }
  return wait ?? { kind: "release" };
}

export type RestartVerdict = Pick<Required<Verdict>, "isPartial" | "nextMs">;

/** Woken by changes in slots with a waiting replacement. */
export const restartMachine = reconciling<ReconcileContext<RestartVerdict>>().createMachine({
  id: "restart",
  context: { verdict: { nextMs: -1, isPartial: false }, isTouched: false },
  initial: "resting",
  states: {
    resting: resting({
      description:
        "No replacement task waits for a deadline; those that wait for their predecessor start when it has stopped.",
      meta: {
        waitingFor: "a replacement task that must wait",
        wokenBy: { "work.arrived": "a change in a slot with a replacement task, or of a node" },
      },
    }),
    waiting: resting({
      description: "Replacement tasks must not start yet. Q2",
      meta: {
        waitingFor: "the end of a restart delay, or a predecessor that stops",
        wokenBy: {
          "work.arrived": "a change in a slot with a replacement task, or of a node",
          nextRound: "the nearest deadline",
        },
      },
      after: { nextRound: "deciding" },
    }),
    gathering: gathering({
      description: "Something happened in a slot with a waiting replacement; gathering more from the same commits.",
    }),
    deciding: deciding({
      description: "Checking the waiting replacements and starting those that may run. Q1, Q4",
    }),
    judged: judged([{ guard: "hasNext", target: "waiting" }, { target: "resting" }]),
  },
});
