/**
 * References of the previous spec of an unfinished update. Their objects are kept until the update is over: it may still be
 * rolled back, by its failure action or by an operator who aborts it.
 */
import { UpdateStatus_UpdateState, type Service, type ServiceSpec, type Task } from "../../../proto/gen/messages.ts";
import { isJob } from "../service-mode.ts";
import { TaskDirty } from "../task-dirty.ts";
import { isWanted } from "../../task.ts";

/** The tasks of a service. */
export type TasksOf = (serviceId: string) => Iterable<Task>;

/** Whether the service's current spec uses an object, or only the spec that its update may be rolled back to. */
export type Use = "now" | "rollback";

/** `names`: whether a spec refers to the object. Null: neither spec does. */
export function useBy(service: Service, tasksOf: TasksOf, names: (spec: ServiceSpec) => boolean): Use | null {
  const { previousSpec, spec } = service;
  if (spec !== null && names(spec)) return "now";
  // The cheap check first: few services get past it.
  if (previousSpec === null || !names(previousSpec)) return null;
  return mayRollBack(service, tasksOf) ? "rollback" : null;
}

/** The leader starts a rollout a moment after UpdateService: until then, dirty tasks show that one is due. */
function mayRollBack(service: Service, tasksOf: TasksOf): boolean {
  if (isJob(service.spec)) return false;
  switch (service.updateStatus?.state) {
    case UpdateStatus_UpdateState.UPDATING:
    case UpdateStatus_UpdateState.PAUSED:
      return true;
    case undefined:
      return hasDirtyTask(service, tasksOf(service.id));
    default:
      return false;
  }
}

function hasDirtyTask(service: Service, tasks: Iterable<Task>): boolean {
  const taskDirty = new TaskDirty();
  for (const task of tasks) if (isWanted(task) && taskDirty.isDirty(task, service, () => undefined)) return true;
  return false;
}
