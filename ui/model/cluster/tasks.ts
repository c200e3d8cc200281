/** Texts about tasks: their looks, names and order. */
import { TaskState, type Task, type Timestamp } from "../../../proto/gen/cluster.ts";

/** Classes of states that look the same in the matrix: each has a shape and a colour of its own. */
export const looks = ["waiting", "starting", "running", "stopping", "complete", "stopped", "failed", "lost"] as const;
export type Look = (typeof looks)[number];

/** Texts of the legend. */
export const lookTexts: Readonly<Record<Look, string>> = {
  waiting: "waiting for a node",
  starting: "starting",
  running: "running",
  stopping: "stopping",
  complete: "complete",
  stopped: "stopped",
  failed: "failed",
  lost: "lost with its node",
};

const stateNames = new Map<number, string>(
  Object.entries(TaskState).map(([name, state]) => [state, name.toLowerCase()]),
);

export function stateOf(task: Task): TaskState {
  return task.status?.state ?? TaskState.NEW;
}

/** `running`. */
export function stateName(state: TaskState): string {
  return stateNames.get(state) ?? String(state);
}

/** It is to run, now or later. A task of a job is to complete. */
export function isWanted(task: Task): boolean {
  return task.desiredState <= TaskState.COMPLETE;
}

export function isEnded(task: Task): boolean {
  return stateOf(task) > TaskState.RUNNING;
}

export function lookOf(task: Task): Look {
  const state = stateOf(task);
  if (state === TaskState.FAILED || state === TaskState.REJECTED) return "failed";
  if (state === TaskState.ORPHANED) return "lost";
  if (state === TaskState.COMPLETE) return "complete";
  if (isEnded(task)) return "stopped";
  if (!isWanted(task)) return "stopping";
  if (state === TaskState.RUNNING) return "running";
  return state <= TaskState.PENDING ? "waiting" : "starting";
}

/** Identifies the slot: of a global service, the node. */
function slotOf({ nodeId, serviceId, slot }: Task): string {
  return `${serviceId} ${slot === 0 ? nodeId : slot}`;
}

/** `web.2`, or `web` with the node's name for a global service. */
export function taskName(task: Task, nodeName: (id: string) => string): string {
  const own = task.annotations?.name ?? "";
  const service = task.serviceAnnotations?.name || task.serviceId;
  if (own !== "" && task.jobIteration === null) return own;
  return `${service}.${task.slot === 0 ? nodeName(task.nodeId) : task.slot}`;
}

export function timeOf(time: Timestamp | null | undefined): number | null {
  return time == null ? null : time.seconds * 1_000 + time.nanos / 1e6;
}

/** The newest first. */
export function byAge(a: Task, b: Task): number {
  return (timeOf(b.meta?.createdAt) ?? 0) - (timeOf(a.meta?.createdAt) ?? 0) || (a.id < b.id ? 1 : -1);
}

/** Without those that have ended and have a successor in their slot. */
export function currentTasks(tasks: Iterable<Task>): readonly Task[] {
  const newest = new Map<string, Task>();
  const live: Task[] = [];
  for (const task of tasks) {
    if (!isEnded(task)) live.push(task);
    const slot = slotOf(task);
    const other = newest.get(slot);
    if (other === undefined || byAge(task, other) < 0) newest.set(slot, task);
  }
  return [...live, ...[...newest.values()].filter(isEnded)];
}

/** The image, or the kind of its runtime. */
export function imageOf({ spec }: Task): string {
  if (spec?.container != null) return spec.container.image.replace(/@sha256:.*$/, "");
  return spec?.generic?.kind ?? "";
}
