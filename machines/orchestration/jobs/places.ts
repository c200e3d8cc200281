/**
 * The places of a job's current iteration: the slots of a replicated job (0 to TotalCompletions - 1), or the nodes of a
 * global job. A place's standing is derived from its stored tasks, so every leader sees the same.
 *
 * J1: a completed place is not repeated in its iteration.
 * J2: a place whose attempts are used up stays failed across changes of leader (SwarmKit: each new leader tries it once more).
 */
import { meetsPlacement } from "../../scheduling/constraints.ts";
import { faultOf, isAttempt, shouldRestart, type NodeOf } from "../restart.machine.ts";
import { isDrained, takesTasks } from "../../node.ts";
import { isWanted, newestOf, observedState } from "../../task.ts";
import { TaskState, type Node, type Service, type Task } from "../../../proto/gen/messages.ts";

/** A slot of a replicated job; for a global job slot 0 of a node. */
export interface Place {
  readonly slot: number;
  /** Empty: the scheduler chooses. */
  readonly nodeId: string;
}

type Standing =
  | { readonly kind: "done"; readonly task: Task }
  /** It has a wanted task that can continue. */
  | { readonly kind: "busy"; readonly task: Task }
  /** Its wanted task cannot continue: it needs a successor, or the place has failed. */
  | { readonly kind: "faulty"; readonly task: Task; readonly mayRetry: boolean }
  /** J2 */
  | { readonly kind: "failed"; readonly task: Task }
  /** It has no task that counts; `last`: the previous task, which did not use up the attempts. */
  | { readonly kind: "open"; readonly last: Task | null };

/** The job's iteration: 0 for a new job, incremented by each update that restarts its work. */
export function iterationOf(service: Service): number {
  return service.jobStatus?.jobIteration?.index ?? 0;
}

export function isOfIteration(task: Task, iteration: number): boolean {
  return task.jobIteration !== null && task.jobIteration.index === iteration;
}

/** By slot or node. `tasks`: of one iteration, oldest first. */
export function groupByPlace(service: Service, tasks: Iterable<Task>): Map<number | string, Task[]> {
  const isGlobal = service.spec?.globalJob != null;
  const places = new Map<number | string, Task[]>();
  for (const task of tasks) {
    const key = isGlobal ? task.nodeId : task.slot;
    const place = places.get(key);
    if (place === undefined) places.set(key, [task]);
    else place.push(task);
  }
  return places;
}

/** `tasks`: the tasks of one place and iteration, oldest first. */
export function standingOf(tasks: readonly Task[], nodeOf: NodeOf): Standing {
  const done = tasks.find((task) => observedState(task) === TaskState.COMPLETE);
  if (done !== undefined) return { kind: "done", task: done };
  const wanted = tasks.filter((task) => isWanted(task));
  const best =
    wanted.length <= 1
      ? wanted[0]
      : wanted.reduce((kept, task) => (merit(task, nodeOf) > merit(kept, nodeOf) ? task : kept));
  if (best !== undefined) {
    const fault = faultOf(best, nodeOf);
    return fault === null
      ? { kind: "busy", task: best }
      : { kind: "faulty", task: best, mayRetry: mayRetry(best, tasks) };
  }
  const last = newestOf(tasks) ?? null;
  if (last === null || mayRetry(last, tasks)) return { kind: "open", last };
  return { kind: "failed", task: last };
}

/** Prefers tasks that can continue, then the most advanced; on a tie the oldest. */
function merit(task: Task, nodeOf: NodeOf): number {
  return (faultOf(task, nodeOf) === null ? 1e6 : 0) + observedState(task);
}

/**
 * A task that never had a node is not an attempt, and a task that was stopped, lost, drained or evicted has not failed (J6):
 * these may be retried whatever the restart policy.
 */
function mayRetry(task: Task, tasks: readonly Task[]): boolean {
  return task.nodeId === "" || !isAttempt(task) || shouldRestart(task, tasks);
}

/** Whether a global job may start on the node: it accepts new tasks and meets the job's placement. */
export function isEligible(service: Service, node: Node): boolean {
  return takesTasks(node) && meetsPlacement(service.spec?.task?.placement ?? null, node);
}

/** Whether a global job's task may stay on the node: also if the node is paused or temporarily silent. */
export function mayStay(service: Service, node: Node): boolean {
  return !isDrained(node) && meetsPlacement(service.spec?.task?.placement ?? null, node);
}
