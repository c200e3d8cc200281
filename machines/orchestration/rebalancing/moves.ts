/**
 * Past moves: what they still wait for, how much of the budget they use, and what they changed.
 *
 * R4: a round starts when the last one is over: all moved tasks run and were monitored for the update config's monitor period,
 *     and its delay has passed.
 * R5: no round exceeds the budget of a round, and no period of the window's length that of the window. Moves are identified
 *     by a label of the tasks that they created, so the budget survives a change of leader as long as these tasks are kept;
 *     on a node where all tasks fail, the reaper deletes them earlier (R2 of reaper.machine.ts).
 */
import { UpdateConfig_UpdateOrder, type Service, type Task } from "../../../proto/gen/messages.ts";
import { isEnded, isHeld, isRunning, isWanted, observedState } from "../../task.ts";
import { durationMs } from "../../../proto/time.ts";
import type { LogTimes } from "../../elapsed.ts";
import { untilAfter, type Hold } from "./hold.ts";
import { rebalanceLabels, type RebalanceSettings } from "./settings.ts";

/** SwarmKit's default monitor period, in milliseconds. */
const monitorMs = 5_000;
/** After this time, in milliseconds, an unfinished move holds only the moves of its own service. */
const openMoveMsMax = 600_000;

/** The task that this one replaces on another node; empty if it was not created by a move. */
export function movedFrom(task: Task): string {
  return task.annotations?.labels[rebalanceLabels.from] ?? "";
}

/** The update config's settings for moves; parallelism 0 means as many as the budget allows. */
export function paceOf(service: Service): {
  readonly parallelism: number;
  readonly isStartFirst: boolean;
  /** From RUNNING until the next round, in milliseconds. */
  readonly pauseMs: number;
} {
  const config = service.spec?.update ?? null;
  // SwarmKit's default: one slot at a time.
  const parallelism = config === null ? 1 : config.parallelism;
  return {
    parallelism: parallelism === 0 ? Number.MAX_SAFE_INTEGER : parallelism,
    isStartFirst: config?.order === UpdateConfig_UpdateOrder.START_FIRST,
    pauseMs: Math.max(durationMs(config?.delay ?? null, 0), durationMs(config?.monitor ?? null, monitorMs)),
  };
}

/** R4: why a move still waits; null: it is over, or no longer a move. `before`: the task that it replaces. */
export function openMove(
  task: Task | undefined,
  before: Task | undefined,
  service: Service | undefined,
  nowMs: number,
  times: LogTimes,
): Hold | null {
  if (task === undefined || service === undefined || !isWanted(task) || isEnded(observedState(task))) return null;
  const patience = untilAfter(times.madeMs(task), openMoveMsMax, nowMs);
  if (patience === null) return null;
  if (!isRunning(task)) return { reason: `task ${task.id} to run`, untilMs: patience };
  if (before !== undefined && isHeld(observedState(before))) {
    return { reason: `task ${before.id} to stop`, untilMs: patience };
  }
  const untilMs = untilAfter(times.reachedMs(task), paceOf(service).pauseMs, nowMs);
  return untilMs === null
    ? null
    : { reason: `the monitor period and delay of the update config for moved task ${task.id}`, untilMs };
}

/** R5: how many moves of these times are within the window, and when the oldest of them leaves it. */
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
  return isRunning(task) && untilAfter(times.reachedMs(task), settings.settleMs, nowMs) === null;
}

/** Whether some tasks are not steady yet; no event reports when they become steady. */
export function areSettling(
  tasks: Iterable<Task>,
  settings: RebalanceSettings,
  nowMs: number,
  times: LogTimes,
): boolean {
  for (const task of tasks) {
    const isPlaced = task.nodeId !== "" && isWanted(task) && !isEnded(observedState(task));
    if (isPlaced && !isSteady(task, settings, nowMs, times)) return true;
  }
  return false;
}

/**
 * Number of steady tasks by node id: tasks that have run for the settling time, and tasks created by moves, which count from
 * the start so that the next round sees the result of the last one.
 */
export function steadyLoads(
  tasks: Iterable<Task>,
  settings: RebalanceSettings,
  nowMs: number,
  times: LogTimes,
): Map<string, number> {
  const loads = new Map<string, number>();
  for (const task of tasks) {
    if (task.nodeId === "" || !isWanted(task) || isEnded(observedState(task))) continue;
    if (isSteady(task, settings, nowMs, times)) loads.set(task.nodeId, (loads.get(task.nodeId) ?? 0) + 1);
  }
  return loads;
}
