/**
 * How many tasks of a service there should be, and are. Unlike SwarmKit, which counts whatever was last reported, only
 * tasks that are still wanted and whose node is not down count as running: never `5/3`. Of a job a slot or node is
 * completed once, however many of its tasks are, and what a job wants to run is no more than is left to do.
 */
import { NodeStatus_State, TaskState, type Node, type Service, type Task } from "../../proto/gen/messages.ts";
import { isOfIteration, iterationOf } from "./jobs/places.ts";
import { progressOf } from "./jobs/progress.ts";
import type { NodeOf } from "./restart.ts";
import { modeOf } from "./service-mode.ts";

export interface ServiceCounts {
  readonly desired: number;
  readonly running: number;
  readonly completed: number;
}

export function countTasks(service: Service, tasks: Iterable<Task>, nodeOf: NodeOf): ServiceCounts {
  const mode = modeOf(service.spec);
  if (mode === "replicated-job" || mode === "global-job") return countJob(service, [...tasks], nodeOf);
  if (mode === "global") return countGlobal(tasks, nodeOf);
  let running = 0;
  for (const task of tasks) if (task.desiredState === TaskState.RUNNING && runsAlive(task, nodeOf)) running += 1;
  switch (mode) {
    case "replicated":
      return { desired: service.spec?.replicated?.replicas ?? 0, running, completed: 0 };
    case null:
      return { desired: 0, running: 0, completed: 0 };
  }
}

/** Nodes are counted, not tasks: one where a task follows another, or a new one is begun first, still is one place. */
function countGlobal(tasks: Iterable<Task>, nodeOf: NodeOf): ServiceCounts {
  const wanted = new Set<string>();
  const running = new Set<string>();
  for (const task of tasks) {
    if (task.desiredState > TaskState.RUNNING) continue;
    wanted.add(task.nodeId);
    if (task.desiredState === TaskState.RUNNING && runsAlive(task, nodeOf)) running.add(task.nodeId);
  }
  return { desired: wanted.size, running: running.size, completed: 0 };
}

function countJob(service: Service, tasks: readonly Task[], nodeOf: NodeOf): ServiceCounts {
  const { phase, total, done, failed, busy } = progressOf(service, tasks, { nodeOf, nodes: () => [] });
  const iteration = iterationOf(service);
  const running = tasks.filter(
    (task) => isOfIteration(task, iteration) && task.desiredState === TaskState.COMPLETE && runsAlive(task, nodeOf),
  ).length;
  const limit = service.spec?.replicatedJob?.maxConcurrent ?? busy;
  return { desired: phase === "working" ? Math.min(limit, total - done - failed) : busy, running, completed: done };
}

function runsAlive(task: Task, nodeOf: NodeOf): boolean {
  return task.status?.state === TaskState.RUNNING && isLive(nodeOf(task.nodeId));
}

function isLive(node: Node | undefined): boolean {
  return node !== undefined && node.status?.state !== NodeStatus_State.DOWN;
}
