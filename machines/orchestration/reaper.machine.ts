/**
 * The reaper: deletes tasks that are over. The chart decides when it runs, by the reconcile loop (`machines/reconcile.ts`);
 * `reapable` decides what it deletes.
 *
 * R1: a task that is desired REMOVE is deleted when nothing of it can run any more.
 * R2: each slot keeps its newest tasks, including the running one, up to the cluster's history limit. It also keeps the tasks
 *     that count the attempts of a limited restart policy (Q3) or refused starts (Q5), whatever was lost or drained between,
 *     and the unwanted task that fills its slot (V2), which would otherwise be repeated. The completed tasks and the last
 *     attempt of a job's current iteration are always kept.
 * R3: the predecessor of a waiting task stays until that task runs, and so does the last task of an earlier spec: they
 *     determine its delay and its part in a rollout.
 * R4: a task that may still run is never deleted to save space.
 * R5: a task that is no longer wanted before it had a node ends as SHUTDOWN, since no node will report on it.
 */
import { TaskState, type Task } from "../../proto/gen/messages.ts";
import { deciding, gathering, judged, reconciling, resting, type ReconcileContext } from "../reconcile.ts";
import { refusedInARow } from "./refused-starts.ts";
import { countedFor, shouldRestart } from "./restart.machine.ts";
import { mayAdvance } from "../task.machine.ts";
import { isEnded, isHeld, isLeaving, isRunning, isWanted, newestOf, observedState, specVersionOf } from "../task.ts";

/** SwarmKit's default number of tasks kept for each slot. */
export const historyLimitDefault = 5;

/** Woken by slots in which a task ended or must be removed. */
export const reaperMachine = reconciling<ReconcileContext<{ readonly isPartial: boolean }>>().createMachine({
  id: "reaper",
  context: { verdict: { isPartial: false }, isTouched: false },
  initial: "idle",
  states: {
    idle: resting({
      description: "No slot keeps more history than the limit.",
      meta: {
        waitingFor: "nothing: no task is to be deleted",
        wokenBy: { "work.arrived": "a task that ends or must be removed, or another history limit" },
      },
    }),
    gathering: gathering({ description: "Tasks ended or must be removed; gathering more from the same commits." }),
    deciding: deciding({
      description: "Deleting removed tasks, and history beyond the limit, from the affected slots. R1, R2, R3, R4, R5",
    }),
    judged: judged([{ target: "idle" }]),
  },
});

export interface SlotFacts {
  /** Tasks of one slot (for a global service: of one node), oldest first. */
  readonly tasks: readonly Task[];
  /** Negative: keep everything. */
  readonly historyLimit: number;
  readonly hasService: boolean;
  readonly hasNode: (id: string) => boolean;
  /** The current iteration of their job; absent for other tasks. */
  readonly jobIteration?: number | undefined;
}

/** The status message of tasks that end by R5. */
export const neverPlacedMessage = "shutdown before it had a node";

/** Whether it ended by R5, so no node ever knew it. */
export function isNeverPlaced({ status }: Task): boolean {
  return status?.state === TaskState.SHUTDOWN && status.message === neverPlacedMessage;
}

/** R5 */
export function isAbandoned(task: Task): boolean {
  return !isWanted(task) && !isLeaving(task) && mayAdvance(observedState(task), TaskState.SHUTDOWN, "reaper");
}

/** The tasks of the slot to delete. */
export function reapable(facts: SlotFacts): readonly Task[] {
  const { tasks } = facts;
  const gone: Task[] = [];
  const rest: Task[] = [];
  for (const task of tasks) (isForgotten(task, facts) ? gone : rest).push(task);
  const isJob = facts.jobIteration !== undefined;
  const limit = isJob && facts.historyLimit >= 0 ? Math.max(1, facts.historyLimit) : facts.historyLimit;
  if (limit < 0 || rest.length <= limit) return gone;
  const stays = staying(rest);
  const earlier = isJob ? -1 : lastOfEarlierSpec(rest);
  let surplus = rest.length - limit;
  for (const [at, task] of rest.entries()) {
    if (surplus === 0) break;
    if (at === earlier || stays.has(task) || !isOver(task) || (isJob && isDone(task, facts))) continue;
    gone.push(task);
    surplus -= 1;
  }
  return gone;
}

/** R2 and R3: tasks kept regardless of the history limit, because decisions depend on them. */
function staying(rest: readonly Task[]): ReadonlySet<Task> {
  const stays = new Set<Task>();
  const followed = rest.findLast((task) => isFollowed(task, rest));
  if (followed !== undefined) stays.add(followed);
  const newest = newestOf(rest);
  const wanted = rest.filter(isWanted);
  if (newest !== undefined && wanted.length === 0 && !shouldRestart(newest, rest)) stays.add(newest);
  for (const task of newest === undefined ? wanted : [...wanted, newest])
    for (const counted of [...countedFor(task, rest), ...refusedInARow(task, rest)]) stays.add(counted);
  return stays;
}

/** R1. Also tasks that will never be reported on because their node was removed. */
function isForgotten(task: Task, { hasService, hasNode }: SlotFacts): boolean {
  const state = observedState(task);
  if (state === TaskState.ORPHANED && !hasService) return true;
  if (!isLeaving(task)) return false;
  return !isHeld(state) || !hasNode(task.nodeId);
}

/** R4 */
function isOver(task: Task): boolean {
  const state = observedState(task);
  return isEnded(state) || (!isHeld(state) && !isWanted(task));
}

/** R3: the newest unwanted task while the wanted one does not run. */
function isFollowed(task: Task, rest: readonly Task[]): boolean {
  return !isWanted(task) && rest.some((other) => isWanted(other) && observedState(other) < TaskState.RUNNING);
}

/** R3: while the newest task does not run, the last one with another spec, which marks the slot for a rollout. -1: none. */
function lastOfEarlierSpec(rest: readonly Task[]): number {
  const newest = rest.at(-1);
  if (newest === undefined || isRunning(newest)) return -1;
  const version = specVersionOf(newest);
  return rest.findLastIndex((task) => specVersionOf(task) !== version);
}

/** R2: it has completed in the job's current iteration. */
function isDone(task: Task, { jobIteration }: SlotFacts): boolean {
  return observedState(task) === TaskState.COMPLETE && (task.jobIteration?.index ?? 0) === jobIteration;
}
