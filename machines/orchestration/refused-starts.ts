/**
 * Back-off for refused starts: nothing of the task ever ran, so an immediate retry is mostly useless. The delay of the next
 * attempt is derived from the stored tasks of the slot, so every leader computes the same.
 *
 * RS1: consecutive refused starts of one spec wait longer each time: the n-th waits the policy's delay times 2^(n-1), minus up
 *      to a quarter (derived from the refused task's id, so that slots that fail together do not retry together).
 * RS2: no wait is shorter than the policy's delay, or longer than the greater of `refusedStartDelayMsMax` and that delay.
 * RS3: the first refused start waits like any failure, and so does the first one after a task that ran or after an update.
 * RS4: a policy that limits attempts within a window still reaches its limit: all its waits fit into the window.
 */
import { TaskState, type Task } from "../../proto/gen/messages.ts";
import { durationMs } from "../../proto/time.ts";
import { backoffMs } from "../../lib/backoff.ts";
import { isEnded, observedState, specVersionOf } from "../task.ts";
import { wasEvicted } from "./enforcer.machine.ts";

/** Milliseconds; the maximum back-off of Kubernetes' kubelet for a container that keeps failing. */
export const refusedStartDelayMsMax = 300_000;
/** Milliseconds: the minimum from which delays are doubled, since a delay of 0 would stay 0. */
const refusedStartDelayMsMin = 1_000;
/** Maximum fraction subtracted from a wait. */
const jitterMax = 1 / 4;

/**
 * Whether nothing of the task ever ran because its driver refused to start it, or its node to prepare it. A container that an
 * engine refused counts only if the engine has no container of it: tasks that an engine rejects (a missing image) wait as in
 * SwarmKit.
 */
export function wasRefused(task: Task): boolean {
  const { nodeId, spec, status } = task;
  if (nodeId === "" || status === null || status.container !== null) return false;
  if (status.state === TaskState.FAILED) return true;
  return status.state === TaskState.REJECTED && spec?.container == null && !wasEvicted(task);
}

/** It has run, so earlier refusals no longer count. RS3 */
function hasRun(task: Task): boolean {
  const state = observedState(task);
  if (state === TaskState.RUNNING || state === TaskState.COMPLETE) return true;
  return isEnded(state) && task.status?.container != null;
}

/**
 * The consecutive refused starts up to `task`, or before it if it has not ended; newest first, and only as many as affect the
 * delay. Tasks that had no chance to start (drained, lost, stopped while waiting) are skipped. `slot`: the slot's tasks,
 * oldest first.
 */
export function refusedInARow(task: Task, slot: readonly Task[]): readonly Task[] {
  const refused: Task[] = [];
  const countMax = countMaxOf(task);
  const last = slot.indexOf(task);
  for (let at = last < 0 ? -1 : last; at >= 0 && refused.length < countMax; at -= 1) {
    const one = slot[at] as Task;
    if (
      specVersionOf(one) !== specVersionOf(task) ||
      one.jobIteration?.index !== task.jobIteration?.index ||
      hasRun(one)
    )
      break;
    if (wasRefused(one)) refused.push(one);
  }
  return refused;
}

/** Milliseconds. RS2, RS4 */
function boundMs(task: Task): number {
  const restart = task.spec?.restart ?? null;
  const windowMs = durationMs(restart?.window ?? null, 0);
  const attemptsMax = restart?.maxAttempts ?? 0;
  return attemptsMax > 0 && windowMs > 0
    ? Math.min(refusedStartDelayMsMax, windowMs / (attemptsMax + 1))
    : refusedStartDelayMsMax;
}

/** Number of refusals after which the wait has its full length, whatever the delay. */
function countMaxOf(task: Task): number {
  return 1 + Math.ceil(Math.log2(Math.max(1, boundMs(task) / refusedStartDelayMsMin)));
}

/**
 * Milliseconds from the end of the refused `task` to the start of its successor. `delayMs`: the policy's delay; `count`:
 * consecutive refused starts, including this one. RS1
 */
export function refusedStartDelayMs(task: Task, delayMs: number, count: number): number {
  if (count <= 1) return delayMs;
  const fullMs = backoffMs({ stepMs: Math.max(delayMs, refusedStartDelayMsMin), msMax: boundMs(task) }, count);
  return Math.max(delayMs, Math.round(fullMs * (1 - jitterMax * fractionOf(task.id))));
}

/** 0 to 1, always the same for an id (FNV-1a). */
function fractionOf(id: string): number {
  let hash = 0x811c_9dc5;
  for (let at = 0; at < id.length; at += 1) hash = Math.imul(hash ^ id.charCodeAt(at), 0x0100_0193);
  return (hash >>> 0) / 2 ** 32;
}
