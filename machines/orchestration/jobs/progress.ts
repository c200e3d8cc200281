/** The progress of a job's current iteration, as used by the orchestrator, the schedule, `why` and the command line. */
import { NodeSpec_Availability, type Node, type Service, type Task } from "../../../proto/gen/messages.ts";
import { isStopping, type NodeOf } from "../restart.machine.ts";
import { isEnded, isWanted, observedState } from "../../task.ts";
import { stampedTimes, type LogTimes } from "../../elapsed.ts";
import { jobSettings, scheduleSettings } from "./labels.ts";
import { groupByPlace, isEligible, isOfIteration, iterationOf, standingOf } from "./places.ts";

/** `scheduled`: its runs do the work. */
export type JobPhase = "working" | "paused" | "stopped" | "succeeded" | "failed" | "scheduled";

export interface JobProgress {
  readonly phase: JobPhase;
  /** Number of places, and how many are done, failed, or have a task that should run. */
  readonly total: number;
  readonly done: number;
  readonly failed: number;
  readonly busy: number;
  /** Unfinished tasks of any iteration, except those on DOWN nodes, which nothing waits for (Q4). */
  readonly held: number;
  /** When its last task ended, in milliseconds since the epoch; null until it has finished. */
  readonly finishedMs: number | null;
}

interface ClusterView {
  readonly nodeOf: NodeOf;
  readonly nodes: () => Iterable<Node>;
  /** Absent: the log's timestamps are used uncorrected. */
  readonly times?: LogTimes | undefined;
}

export function progressOf(service: Service, tasks: Iterable<Task>, view: ClusterView): JobProgress {
  const { times = stampedTimes } = view;
  const iteration = iterationOf(service);
  const own: Task[] = [];
  let held = 0;
  for (const task of tasks) {
    if (isStopping(task, view.nodeOf)) held += 1;
    if (isOfIteration(task, iteration)) own.push(task);
  }
  const counts = { total: 0, done: 0, failed: 0, busy: 0, held };
  if (scheduleSettings(service.spec) !== null) return { ...counts, phase: "scheduled", finishedMs: null };
  const places = groupByPlace(service, own);
  let endMs = times.executedMs(service);
  for (const [key, placed] of places) {
    const standing = standingOf(placed, view.nodeOf);
    const node = typeof key === "string" ? view.nodeOf(key) : undefined;
    const isAway = typeof key === "string" && !isAsked(service, node);
    // A drained node gets no successor of a task that failed there.
    const isGivenUp = standing.kind === "faulty" && node?.spec?.availability === NodeSpec_Availability.DRAIN;
    for (const task of placed) if (isEnded(observedState(task))) endMs = Math.max(endMs, times.reachedMs(task));
    if (standing.kind === "done") counts.done += 1;
    // Wait for a task on a paused or silent node, but not for one that was removed from its node.
    else if (isAway && (isGivenUp || !placed.some((task) => isWanted(task)))) continue;
    else if (standing.kind === "failed") counts.failed += 1;
    else if (standing.kind !== "open") counts.busy += 1;
    counts.total += 1;
  }
  counts.total = service.spec?.replicatedJob?.totalCompletions ?? counts.total + untouched(service, places, view);
  const areAllOver = counts.done + counts.failed >= counts.total && counts.busy === 0;
  // A global job without any eligible node is not done.
  const isEmpty = counts.total === 0 && service.spec?.globalJob != null;
  const { state } = jobSettings(service.spec);
  if (areAllOver && !isEmpty) {
    return { ...counts, phase: counts.failed > 0 ? "failed" : "succeeded", finishedMs: endMs };
  }
  return { ...counts, phase: state === "running" ? "working" : state, finishedMs: null };
}

function isAsked(service: Service, node: Node | undefined): boolean {
  return node !== undefined && isEligible(service, node);
}

/** Number of eligible nodes without a task of the job. */
function untouched(service: Service, places: ReadonlyMap<number | string, unknown>, view: ClusterView): number {
  let count = 0;
  for (const node of view.nodes()) if (!places.has(node.id) && isEligible(service, node)) count += 1;
  return count;
}

/** True if no task of the job runs, and none will start without an operator. */
export function isOver(progress: JobProgress): boolean {
  switch (progress.phase) {
    case "succeeded":
    case "failed":
      return true;
    case "stopped":
      return progress.held === 0;
    case "working":
    case "paused":
    case "scheduled":
      return false;
  }
}
