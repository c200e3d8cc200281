/** Whether a task is what its service now asks for; if not, the rollout would replace it. */
import {
  ContainerSpec,
  EndpointSpec,
  TaskSpec,
  TaskState,
  type Service,
  type Task,
} from "../proto/gen/messages.ts";
import { canonical } from "./service-validation.ts";

function text(json: object): string {
  return JSON.stringify(canonical(json));
}

function specText(spec: TaskSpec | null, isPullIgnored: boolean): string {
  if (spec === null) return "";
  const container = spec.container;
  return text(
    TaskSpec.toJson(
      isPullIgnored && container !== null
        ? TaskSpec.patch(spec, { container: ContainerSpec.patch(container, { pullOptions: null }) })
        : spec,
    ),
  );
}

/** A task of a service that is gone is never up to date. */
export function isUpToDate(task: Task, service: Service | undefined): boolean {
  if (service === undefined) return false;
  if ((task.specVersion?.index ?? -1) === (service.specVersion?.index ?? -1)) return true;
  const state = task.status?.state ?? TaskState.NEW;
  // Registry credentials no longer matter once the image was pulled.
  const isPulled =
    task.desiredState <= TaskState.RUNNING && state >= TaskState.READY && state <= TaskState.RUNNING;
  const wanted = service.spec?.endpoint ?? null;
  const given = task.endpoint?.spec ?? null;
  return (
    specText(task.spec, isPulled) === specText(service.spec?.task ?? null, isPulled) &&
    text(wanted === null ? {} : EndpointSpec.toJson(wanted)) === text(given === null ? {} : EndpointSpec.toJson(given))
  );
}
