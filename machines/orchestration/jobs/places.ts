/**
 * The places of a job's present iteration: of a replicated job its slots, 0 to TotalCompletions - 1, of a global job its
 * nodes. What a place has come to follows from its stored tasks, so every leader reads the same.
 *
 * J1: a place whose work is done is never done again in its iteration.
 * J2: a place whose attempts are used up stays given up, whoever leads (in SwarmKit each new leader tries it once more).
 */
import { meetsPlacement } from "../../scheduling/constraints.ts";
import { faultOf, isAttempt, shouldRestart, type NodeOf } from "../restart.ts";
import { isWanted, observedState } from "../../task.ts";
import {
  NodeSpec_Availability,
  NodeStatus_State,
  TaskState,
  type Node,
  type Service,
  type Task,
} from "../../../proto/gen/messages.ts";

/** A slot of a replicated job; for a global job slot 0 of a node. */
export interface Place {
  readonly slot: number;
  /** Empty: the scheduler chooses. */
  readonly nodeId: string;
}

export type Standing =
  | { readonly kind: "done"; readonly task: Task }
  /** A task is wanted there and can go on. */
  | { readonly kind: "busy"; readonly task: Task }
  /** A task is wanted there and cannot go on: another has to follow it, or the place is given up. */
  | { readonly kind: "faulty"; readonly task: Task; readonly mayRetry: boolean }
  /** J2 */
  | { readonly kind: "failed"; readonly task: Task }
  /** Nothing is there that counts; `last`: what was, and did not use up its attempts. */
  | { readonly kind: "open"; readonly last: Task | null };

/** Which time the job is done: 0 for a new one, one more with each update that has it done again. */
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

/** `tasks`: those of one place and iteration, oldest first. */
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
  const last = tasks.findLast((task) => task.desiredState < TaskState.REMOVE) ?? null;
  if (last === null || mayRetry(last, tasks)) return { kind: "open", last };
  return { kind: "failed", task: last };
}

/** Of several the one that can go on, and of those the one that has come farthest; the oldest of equals. */
function merit(task: Task, nodeOf: NodeOf): number {
  return (faultOf(task, nodeOf) === null ? 1e6 : 0) + observedState(task);
}

/**
 * What never had a node has not been tried, and what was stopped, lost, drained or evicted has not failed (J6), whatever
 * the policy says of trying again.
 */
function mayRetry(task: Task, tasks: readonly Task[]): boolean {
  return task.nodeId === "" || !isAttempt(task) || shouldRestart(task, tasks);
}

/** Whether a global job has work on the node: it takes new tasks, and is one that the job asks for. */
export function isEligible(service: Service, node: Node): boolean {
  return (
    node.status?.state === NodeStatus_State.READY &&
    (node.spec?.availability ?? NodeSpec_Availability.ACTIVE) === NodeSpec_Availability.ACTIVE &&
    meetsPlacement(service.spec?.task?.placement ?? null, node)
  );
}

/** Whether a global job's task may stay: a node that is paused or silent for a while is still the task's. */
export function mayStay(service: Service, node: Node): boolean {
  return (
    node.spec?.availability !== NodeSpec_Availability.DRAIN &&
    meetsPlacement(service.spec?.task?.placement ?? null, node)
  );
}
