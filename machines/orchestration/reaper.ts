/**
 * The reaper: forgets tasks that are over. The chart says when it looks; `reapable` says what goes.
 *
 *   idle ──▶ gathering ──▶ reaping ──▶ idle | gathering
 *
 * R1: a task that is desired REMOVE goes once nothing of it can run any more.
 * R2: of each slot the newest tasks stay, as many as the cluster's history limit says, the running one among them. Beside
 *     them stays what says how often a policy with a limit on attempts has tried (Q3) or starts were refused (Q5), whatever was
 *     lost or drained in between, and what fills its slot without being wanted any more (V2): else that would be done again. Of a job's present
 *     iteration what is done, and what was tried last, always stays.
 * R3: what a waiting successor follows stays until the successor runs, and so does the last task of an earlier spec: its
 *     delay and its part in a rollout are read from there.
 * R4: a task that may still run is never deleted to save space.
 * R5: a task that nobody wants any more before it had a node ends as SHUTDOWN: nobody else would ever say so.
 */
import { setup } from "xstate";
import { TaskState, type Task } from "../../proto/gen/messages.ts";
import { effect } from "../effect.ts";
import { refusedInARow } from "./refused-starts.ts";
import { countedFor, shouldRestart } from "./restart.ts";
import { isEnded, isHeld, isWanted, observedState } from "../task.ts";

/** SwarmKit's default number of tasks kept for each slot. */
export const historyLimitDefault = 5;

export type ReaperEvent =
  | { readonly type: "slots.touched" }
  | { readonly type: "round.due" }
  /** `isPartial`: the round ended at its bound. */
  | { readonly type: "round.done"; readonly isPartial: boolean };

export const reaperMachine = setup({
  types: { events: {} as ReaperEvent },
  actions: {
    /** Answered by `round.due` once the commits under way have been seen. */
    gather: effect("gather"),
    /** Deletes what is over in the slots touched; answered by `round.done`. */
    reap: effect("reap"),
    reportUnexpected: effect("reportUnexpected"),
  },
  guards: { isPartial: (_, { isPartial }: { isPartial: boolean }) => isPartial },
}).createMachine({
  id: "reaper",
  initial: "idle",
  options: { maxIterations: 1_000 },
  on: { "*": { actions: "reportUnexpected" } },
  states: {
    idle: {
      description: "No slot keeps more history than the limit.",
      on: { "slots.touched": "gathering" },
    },
    gathering: {
      description: "Tasks ended or are to be removed; gathering more from the same commits.",
      entry: "gather",
      on: { "slots.touched": {}, "round.due": "reaping" },
    },
    reaping: {
      description: "Deleting removed tasks, and history beyond the limit, from the affected slots. R1, R2, R3, R4, R5",
      entry: "reap",
      on: {
        "slots.touched": {},
        "round.done": [
          { guard: { type: "isPartial", params: ({ event }) => event }, target: "gathering" },
          { target: "idle" },
        ],
      },
    },
  },
});

export interface SlotFacts {
  /** Tasks of one slot (of a global service: on one node), in the order in which they were made. */
  readonly tasks: readonly Task[];
  /** Negative: keep everything. */
  readonly historyLimit: number;
  readonly hasService: boolean;
  readonly hasNode: (id: string) => boolean;
  /** The present iteration of the job that they belong to; absent for other tasks. */
  readonly jobIteration?: number | undefined;
}

/** What the reaper says of a task that it ends by R5. */
export const neverPlacedMessage = "shutdown before it had a node";

/** Ended by R5: its node has never heard of it. */
export function isNeverPlaced({ status }: Task): boolean {
  return status?.state === TaskState.SHUTDOWN && status.message === neverPlacedMessage;
}

/** R5 */
export function isAbandoned(task: Task): boolean {
  return (
    task.desiredState > TaskState.COMPLETE &&
    task.desiredState < TaskState.REMOVE &&
    observedState(task) < TaskState.ASSIGNED
  );
}

/** The tasks of the slot that are to be deleted. */
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

/** R2 and R3: what others are decided by, whatever the history limit says. */
function staying(rest: readonly Task[]): ReadonlySet<Task> {
  const stays = new Set<Task>();
  const followed = rest.findLast((task) => isFollowed(task, rest));
  if (followed !== undefined) stays.add(followed);
  const newest = rest.findLast((task) => task.desiredState < TaskState.REMOVE);
  const wanted = rest.filter(isWanted);
  if (newest !== undefined && wanted.length === 0 && !shouldRestart(newest, rest)) stays.add(newest);
  for (const task of newest === undefined ? wanted : [...wanted, newest])
    for (const counted of [...countedFor(task, rest), ...refusedInARow(task, rest)]) stays.add(counted);
  return stays;
}

/** R1. Also what nobody would ever report on: its node is no more. */
function isForgotten(task: Task, { hasService, hasNode }: SlotFacts): boolean {
  const state = observedState(task);
  if (state === TaskState.ORPHANED && !hasService) return true;
  if (task.desiredState < TaskState.REMOVE) return false;
  return !isHeld(state) || !hasNode(task.nodeId);
}

/** R4 */
function isOver(task: Task): boolean {
  const state = observedState(task);
  return isEnded(state) || (!isHeld(state) && !isWanted(task));
}

/** R3: the newest of those that are no longer wanted, while the wanted one does not run. */
function isFollowed(task: Task, rest: readonly Task[]): boolean {
  return !isWanted(task) && rest.some((other) => isWanted(other) && observedState(other) < TaskState.RUNNING);
}

/** R3: while the newest does not run, the last one of another spec; by that a rollout knows its slots. -1: none. */
function lastOfEarlierSpec(rest: readonly Task[]): number {
  const newest = rest.at(-1);
  if (newest === undefined || observedState(newest) === TaskState.RUNNING) return -1;
  const version = newest.specVersion?.index ?? 0;
  return rest.findLastIndex((task) => (task.specVersion?.index ?? 0) !== version);
}

/** R2: its work is done, in the job's present iteration. */
function isDone(task: Task, { jobIteration }: SlotFacts): boolean {
  return observedState(task) === TaskState.COMPLETE && (task.jobIteration?.index ?? 0) === jobIteration;
}
