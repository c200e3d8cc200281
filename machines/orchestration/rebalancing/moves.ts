/**
 * The moves that were made: what they still wait for, what they cost, and what they changed.
 *
 * R4: a round begins when the last one is over: all that moved run, were watched for as long as the update config says,
 *     and its delay has passed.
 * R5: no round has more moves than the budget of a round, and no span of the window's length more than that of the window.
 *     Moves are known by a label of the tasks that they made, so the budget outlives a leader as far as these are kept: of
 *     moves to a node where all fails the reaper deletes them sooner (R2 of reaper.ts).
 */
import { TaskState, UpdateConfig_UpdateOrder, type Service, type Task } from "../../../proto/gen/messages.ts";
import { isEnded, isHeld, isWanted, observedState } from "../../task.ts";
import { durationMs } from "../../../proto/time.ts";
import { stampedTimes, type LogTimes } from "../../elapsed.ts";
import { untilAfter, type Hold } from "./hold.ts";
import { rebalanceLabels, type RebalanceSettings } from "./settings.ts";

/** SwarmKit's: how long a changed task is watched when the update config does not say. */
const monitorMs = 5_000;
/** A move that has not come to its end by then, in milliseconds, holds up the moves of its own service alone. */
const openMoveMsMax = 600_000;

/** The task that this one was made to follow elsewhere; empty for one that was not made by a move. */
export function movedFrom(task: Task): string {
  return task.annotations?.labels[rebalanceLabels.from] ?? "";
}

/** What the update config says for moves; parallelism 0 is as many as the budget allows. */
export function paceOf(service: Service): {
  readonly parallelism: number;
  readonly isStartFirst: boolean;
  /** From RUNNING until the next round, in milliseconds. */
  readonly pauseMs: number;
} {
  const config = service.spec?.update ?? null;
  // SwarmKit's default: one slot after the other.
  const parallelism = config === null ? 1 : config.parallelism;
  return {
    parallelism: parallelism === 0 ? Number.MAX_SAFE_INTEGER : parallelism,
    isStartFirst: config?.order === UpdateConfig_UpdateOrder.START_FIRST,
    pauseMs: Math.max(durationMs(config?.delay ?? null, 0), durationMs(config?.monitor ?? null, monitorMs)),
  };
}

/** R4: what a move still waits for; null: it is over, or no longer a move. `before`: the task that it follows. */
export function openMove(
  task: Task | undefined,
  before: Task | undefined,
  service: Service | undefined,
  nowMs: number,
  times: LogTimes = stampedTimes,
): Hold | null {
  if (task === undefined || service === undefined || !isWanted(task) || isEnded(observedState(task))) return null;
  const patience = untilAfter(times.madeMs(task), openMoveMsMax, nowMs);
  if (patience === null) return null;
  if (observedState(task) !== TaskState.RUNNING) return { reason: `task ${task.id} to run`, untilMs: patience };
  if (before !== undefined && isHeld(observedState(before))) {
    return { reason: `task ${before.id} to stop`, untilMs: patience };
  }
  const untilMs = untilAfter(times.reachedMs(task), paceOf(service).pauseMs, nowMs);
  return untilMs === null
    ? null
    : { reason: `task ${task.id}, which moved, to have run for the time that the update config says`, untilMs };
}

/** R5: how many of the moves made at these times count now, and when the oldest of them no longer does. */
export function spentMoves(
  madeMs: Iterable<number>,
  settings: RebalanceSettings,
  nowMs: number,
): { readonly spent: number; readonly untilMs: number | null } {
  let spent = 0;
  let untilMs: number | null = null;
  for (const time of madeMs) {
    const until = untilAfter(time, settings.windowMs, nowMs);
    if (until === null) continue;
    spent += 1;
    if (untilMs === null || until < untilMs) untilMs = until;
  }
  return { spent, untilMs };
}

function isSteady(task: Task, settings: RebalanceSettings, nowMs: number, times: LogTimes): boolean {
  if (movedFrom(task) !== "") return true;
  const isRunning = observedState(task) === TaskState.RUNNING;
  return isRunning && untilAfter(times.reachedMs(task), settings.settleMs, nowMs) === null;
}

/** Whether some tasks may yet come to stay where they are, which nobody tells when it is so. */
export function areSettling(
  tasks: Iterable<Task>,
  settings: RebalanceSettings,
  nowMs: number,
  times: LogTimes = stampedTimes,
): boolean {
  for (const task of tasks) {
    const isPlaced = task.nodeId !== "" && isWanted(task) && !isEnded(observedState(task));
    if (isPlaced && !isSteady(task, settings, nowMs, times)) return true;
  }
  return false;
}

/**
 * Tasks that are there to stay, by node id: those that have run for the settling time, and those that moves made, which
 * count from the start, or the next round would not see what the last one has done.
 */
export function steadyLoads(
  tasks: Iterable<Task>,
  settings: RebalanceSettings,
  nowMs: number,
  times: LogTimes = stampedTimes,
): Map<string, number> {
  const loads = new Map<string, number>();
  for (const task of tasks) {
    if (task.nodeId === "" || !isWanted(task) || isEnded(observedState(task))) continue;
    if (isSteady(task, settings, nowMs, times)) loads.set(task.nodeId, (loads.get(task.nodeId) ?? 0) + 1);
  }
  return loads;
}
