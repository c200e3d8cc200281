/**
 * What an update that is not over may yet be rolled back to, by itself or by an operator who aborts it: what that spec
 * names is kept until the update is over, or the way back would lead nowhere.
 */
import { UpdateStatus_UpdateState, type Service, type ServiceSpec, type Task } from "../../../proto/gen/messages.ts";
import { isJob } from "../service-mode.ts";
import { TaskDirty } from "../task-dirty.ts";
import { isWanted } from "../../task.ts";

/** The tasks of a service. */
export type TasksOf = (serviceId: string) => Iterable<Task>;

/** Whether the service names it now, or only in the spec that an update of it may be rolled back to. */
export type Use = "now" | "way back";

/** `names`: whether a spec names what is asked about. Null: neither spec that counts does. */
export function useBy(service: Service, tasksOf: TasksOf, names: (spec: ServiceSpec) => boolean): Use | null {
  const { previousSpec, spec } = service;
  if (spec !== null && names(spec)) return "now";
  // Asked first: few services get so far.
  if (previousSpec === null || !names(previousSpec)) return null;
  return mayTurnBack(service, tasksOf) ? "way back" : null;
}

/** A rollout that UpdateService has asked for is begun by the leader a moment later: then the tasks tell. */
function mayTurnBack(service: Service, tasksOf: TasksOf): boolean {
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
