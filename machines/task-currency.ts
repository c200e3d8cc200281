/** Whether a task is what its service now asks for; if not, the rollout would replace it. */
import { ContainerSpec, TaskSpec, TaskState, type Service, type Task } from "../proto/gen/messages.ts";
import { isSameMessage } from "./same-message.ts";

function withoutCredentials(spec: TaskSpec | null): TaskSpec | null {
  const container = spec?.container ?? null;
  if (spec === null || container === null) return spec;
  return TaskSpec.patch(spec, { container: ContainerSpec.patch(container, { pullOptions: null }) });
}

/** A task of a service that is gone is never up to date. */
export function isUpToDate(task: Task, service: Service | undefined): boolean {
  if (service === undefined) return false;
  if ((task.specVersion?.index ?? -1) === (service.specVersion?.index ?? -1)) return true;
  const state = task.status?.state ?? TaskState.NEW;
  // Registry credentials no longer matter once the image was pulled.
  const isPulled = task.desiredState <= TaskState.RUNNING && state >= TaskState.READY && state <= TaskState.RUNNING;
  const wanted = service.spec?.task ?? null;
  const isSameTask = isPulled
    ? isSameMessage(withoutCredentials(task.spec), withoutCredentials(wanted))
    : isSameMessage(task.spec, wanted);
  return isSameTask && isSameMessage(task.endpoint?.spec ?? null, service.spec?.endpoint ?? null);
}
