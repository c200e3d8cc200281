/** Whether a service is where its spec wants it, judged from the service, its tasks and the nodes alone. Pure. */
import { modeOf } from "../machines/validation/service.ts";
import { isUpToDate } from "../machines/task-currency.ts";
import {
  NodeSpec_Availability,
  NodeStatus_State,
  TaskState,
  UpdateStatus_UpdateState,
  type Node,
  type Service,
  type Task,
} from "../proto/gen/messages.ts";

export type Convergence =
  | { readonly kind: "converged" }
  /** `remark`: why the slowest is not there yet, empty when nothing says so. */
  | { readonly kind: "moving"; readonly done: number; readonly wanted: number; readonly remark: string }
  | { readonly kind: "failed"; readonly reason: string };

const stopped: Readonly<Partial<Record<UpdateStatus_UpdateState, string>>> = {
  [UpdateStatus_UpdateState.PAUSED]: "update paused",
  [UpdateStatus_UpdateState.ROLLBACK_PAUSED]: "rollback paused",
  [UpdateStatus_UpdateState.ROLLBACK_COMPLETED]: "rolled back",
};
const busy: readonly UpdateStatus_UpdateState[] = [
  UpdateStatus_UpdateState.UPDATING,
  UpdateStatus_UpdateState.ROLLBACK_STARTED,
];

/** A global service wants a task on each node that takes new ones; the scheduler may find that fewer fit. */
function globalWanted(current: readonly Task[], nodes: Iterable<Node>): number {
  if (current.length > 0) return current.length;
  let open = 0;
  for (const { status, spec } of nodes) {
    const isActive = (spec?.availability ?? NodeSpec_Availability.ACTIVE) === NodeSpec_Availability.ACTIVE;
    if (status?.state === NodeStatus_State.READY && isActive) open += 1;
  }
  return open;
}

/** `isRollback`: the user asked for the rollback, so that it is no failure. */
export function convergence(
  service: Service,
  tasks: Iterable<Task>,
  nodes: Iterable<Node>,
  isRollback: boolean,
): Convergence {
  const update = service.updateStatus?.state;
  const reason = update === undefined ? undefined : stopped[update];
  const isAsked = isRollback && update === UpdateStatus_UpdateState.ROLLBACK_COMPLETED;
  if (reason !== undefined && !isAsked) {
    return { kind: "failed", reason: `service ${reason}: ${service.updateStatus?.message ?? ""}` };
  }
  const mode = modeOf(service.spec);
  const isJob = mode === "replicated-job" || mode === "global-job";
  const iteration = service.jobStatus?.jobIteration?.index ?? 0;
  const goal = isJob ? TaskState.COMPLETE : TaskState.RUNNING;
  const current: Task[] = [];
  for (const task of tasks) {
    const isOurs = isJob ? (task.jobIteration?.index ?? 0) === iteration : task.desiredState <= TaskState.RUNNING;
    if (isOurs) current.push(task);
  }
  const isDone = (task: Task): boolean =>
    task.status?.state === goal && (isJob || (task.desiredState === TaskState.RUNNING && isUpToDate(task, service)));
  const done = current.filter(isDone).length;
  const wanted =
    mode === "replicated"
      ? (service.spec?.replicated?.replicas ?? 0)
      : mode === "replicated-job"
        ? (service.spec?.replicatedJob?.totalCompletions ?? 0)
        : globalWanted(
            current.filter(({ desiredState }) => desiredState <= TaskState.COMPLETE),
            nodes,
          );
  const isSettled = update === undefined || !busy.includes(update);
  // More than are wanted still run while a service shrinks.
  const isShrunk = isJob || current.length <= wanted;
  if (done >= wanted && isSettled && isShrunk) return { kind: "converged" };
  const waiting = current.find((task) => !isDone(task) && (task.status?.err ?? "") !== "");
  return { kind: "moving", done: Math.min(done, wanted), wanted, remark: waiting?.status?.err ?? "" };
}
