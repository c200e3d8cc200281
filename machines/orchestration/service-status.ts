/**
 * The desired and actual numbers of a service's tasks. Unlike SwarmKit, which counts the last reports, only wanted tasks on
 * nodes that are not DOWN count as running, so it never shows `5/3`. In a job, a slot or node completes once, however many of
 * its tasks do, and the desired number is at most the remaining work.
 */
import { isLive } from "../node.ts";
import { isRunning } from "../task.ts";
import { TaskState, type Service, type Task } from "../../proto/gen/messages.ts";
import { isOfIteration, iterationOf } from "./jobs/places.ts";
import { progressOf } from "./jobs/progress.ts";
import type { NodeOf } from "./restart.machine.ts";
import { modeOf } from "./service-mode.ts";

interface ServiceCounts {
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

/** Counts nodes, not tasks: a node on which one task replaces another is still one place. */
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
  return isRunning(task) && isLive(nodeOf(task.nodeId));
}
