/**
 * How many tasks of a service there should be, and are. Unlike SwarmKit, which counts whatever was last reported, only
 * tasks that are still wanted and whose node is not down count as running: never `5/3`.
 */
import { NodeStatus_State, TaskState, type Node, type Service, type Task } from "../proto/gen/messages.ts";
import { modeOf } from "./validation/service.ts";

export interface ServiceCounts {
  readonly desired: number;
  readonly running: number;
  readonly completed: number;
}

export function countTasks(
  service: Service,
  tasks: Iterable<Task>,
  nodeOf: (id: string) => Node | undefined,
): ServiceCounts {
  const mode = modeOf(service.spec);
  const isJobMode = mode === "replicated-job" || mode === "global-job";
  const wanted = isJobMode ? TaskState.COMPLETE : TaskState.RUNNING;
  const iteration = service.jobStatus?.jobIteration?.index ?? 0;
  let wantedTasks = 0;
  let unfinished = 0;
  let running = 0;
  let completed = 0;
  for (const task of tasks) {
    if (isJobMode && (task.jobIteration?.index ?? 0) !== iteration) continue;
    const state = task.status?.state ?? TaskState.NEW;
    if (isJobMode && state === TaskState.COMPLETE) completed += 1;
    if (task.desiredState !== wanted) continue;
    wantedTasks += 1;
    if (state < TaskState.COMPLETE) unfinished += 1;
    if (state === TaskState.RUNNING && isLive(nodeOf(task.nodeId))) running += 1;
  }
  switch (mode) {
    case "replicated":
      return { desired: service.spec?.replicated?.replicas ?? 0, running, completed };
    case "replicated-job":
      return { desired: service.spec?.replicatedJob?.maxConcurrent ?? 0, running, completed };
    case "global":
      return { desired: wantedTasks, running, completed };
    case "global-job":
      return { desired: unfinished, running, completed };
    case null:
      return { desired: 0, running: 0, completed: 0 };
  }
}

function isLive(node: Node | undefined): boolean {
  return node !== undefined && node.status?.state !== NodeStatus_State.DOWN;
}
