/**
 * The template of a task whose slot has not had its turn yet: exactly the spec of its predecessor, not the service's current
 * one.
 */
import { Endpoint, Service, ServiceSpec, type Task, type TaskSpec } from "../../../proto/gen/messages.ts";
import type { TaskTemplate } from "../new-task.ts";

function pinned(base: TaskTemplate, like: Task): TaskTemplate {
  const spec = like.endpoint?.spec ?? null;
  return {
    ...base,
    service: Service.patch(base.service, {
      spec: ServiceSpec.patch(base.service.spec ?? ServiceSpec.create(), { task: like.spec }),
      specVersion: like.specVersion,
    }),
    annotations: like.serviceAnnotations,
    endpoint: spec === null ? null : Endpoint.create({ spec }),
    logDriver: like.logDriver,
  };
}

/** Templates for the tasks of one decision: `base`, or the given task's spec. Tasks with the same spec share a template. */
export function templatesFor(base: TaskTemplate): (like: Task | undefined) => TaskTemplate {
  const known = new Map<TaskSpec | null, TaskTemplate>();
  return (like) => {
    if (like === undefined) return base;
    let template = known.get(like.spec);
    if (template === undefined) known.set(like.spec, (template = pinned(base, like)));
    return template;
  };
}
