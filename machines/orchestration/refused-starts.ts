/**
 * Starts that were refused: nothing of the task ever ran, so trying again at once is mostly in vain. How long the next try waits
 * follows from the stored tasks of the slot, so that every leader says the same.
 *
 * RS1: refused starts in a row, of one spec, wait longer each time: the n-th waits the policy's delay times 2^(n-1), of which at
 *      most a quarter is taken off (by the refused task's id, so that slots which fail together do not retry together).
 * RS2: no wait is shorter than the policy's delay, and none is longer than `backOffMsMax` or that delay, whichever is more.
 * RS3: the first refused start waits as any failure does, and so does the first one after a task that ran or after an update.
 * RS4: a policy that limits attempts within a window still reaches its limit: all of its waits fit into the window.
 */
import { TaskState, type Task } from "../../proto/gen/messages.ts";
import { durationMs } from "../../proto/time.ts";
import { isEnded, observedState } from "../task.ts";
import { wasEvicted } from "./enforcer.ts";

/** Milliseconds, as Kubernetes' kubelet waits at most before it starts a container that keeps failing. */
export const backOffMsMax = 300_000;
/** Milliseconds: a policy's delay of less is doubled from here, or one of 0 would stay 0. */
const backOffMsMin = 1_000;
/** Share of a wait that is taken off at most. */
const jitterMax = 1 / 4;

/**
 * Whether nothing of the task ever ran because its driver refused to start it, or its node to prepare it. A container that an engine
 * refused counts only when the engine had nothing of it: what an engine rejects (a missing image) waits as in SwarmKit.
 */
export function wasRefused(task: Task): boolean {
  const { nodeId, spec, status } = task;
  if (nodeId === "" || status === null || status.container !== null) return false;
  if (status.state === TaskState.FAILED) return true;
  return status.state === TaskState.REJECTED && spec?.container == null && !wasEvicted(task);
}

/** It was up: what was refused before it says nothing of what comes after it. RS3 */
function hasRun(task: Task): boolean {
  const state = observedState(task);
  if (state === TaskState.RUNNING || state === TaskState.COMPLETE) return true;
  return isEnded(state) && task.status?.container != null;
}

function versionOf(task: Task): number {
  return task.specVersion?.index ?? 0;
}

/**
 * The refused starts in a row that end with `task`, or before it where it has not ended; newest first, and no more than make a
 * difference. What never had the chance to start (drained, lost, stopped while it waited) is passed over.
 * `slot`: the slot's tasks, oldest first.
 */
export function refusedInARow(task: Task, slot: readonly Task[]): readonly Task[] {
  const refused: Task[] = [];
  const countMax = countMaxOf(task);
  const last = slot.indexOf(task);
  for (let at = last < 0 ? -1 : last; at >= 0 && refused.length < countMax; at -= 1) {
    const one = slot[at] as Task;
    if (versionOf(one) !== versionOf(task) || one.jobIteration?.index !== task.jobIteration?.index || hasRun(one))
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
  return attemptsMax > 0 && windowMs > 0 ? Math.min(backOffMsMax, windowMs / (attemptsMax + 1)) : backOffMsMax;
}

/** After so many the wait has its full length, whatever the delay. */
function countMaxOf(task: Task): number {
  return 1 + Math.ceil(Math.log2(Math.max(1, boundMs(task) / backOffMsMin)));
}

/**
 * Milliseconds from the end of `task`, which was refused, to the start of its successor. `delayMs`: the policy's; `count`: refused
 * starts in a row, with this one. RS1
 */
export function backOffMs(task: Task, delayMs: number, count: number): number {
  if (count <= 1) return delayMs;
  const fullMs = Math.min(boundMs(task), Math.max(delayMs, backOffMsMin) * 2 ** (count - 1));
  return Math.max(delayMs, Math.round(fullMs * (1 - jitterMax * fractionOf(task.id))));
}

/** 0 to 1, the same for one id always (FNV-1a). */
function fractionOf(id: string): number {
  let hash = 0x811c_9dc5;
  for (let at = 0; at < id.length; at += 1) hash = Math.imul(hash ^ id.charCodeAt(at), 0x0100_0193);
  return (hash >>> 0) / 2 ** 32;
}
