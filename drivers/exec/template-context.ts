/**
 * What templates of a task may name: SwarmKit's contexts. In the environment that is the service, the node and the task; in
 * the content of secrets and configs also the task's environment and its other files.
 */
import type { DriverTask } from "../../actors/agent-ports.ts";

export interface TemplateContext {
  /** What `.` is: fields by Go's names. */
  readonly fields: Fields;
  /** Each takes and gives texts; a refusal is thrown as TemplateError. */
  readonly functions: Readonly<Record<string, (...args: readonly string[]) => string>>;
}

export interface Fields {
  readonly [name: string]: string | Fields;
}

/** Why a template cannot be expanded, as a sentence without its beginning. */
export class TemplateError extends Error {
  override readonly name = "TemplateError";
}

/** Go's `strings.Join` with the separator first, as SwarmKit has it. */
const functions: TemplateContext["functions"] = {
  join: (separator = "", ...texts) => texts.join(separator),
};

/** For the environment. */
export function taskContext(task: DriverTask): TemplateContext {
  const fields: Fields = {
    Service: { ID: task.serviceId, Name: task.serviceName, Labels: task.serviceLabels },
    Node: {
      ID: task.nodeId,
      Hostname: task.nodeHostname,
      Platform: { Architecture: task.nodePlatform.architecture, OS: task.nodePlatform.os },
    },
    Task: { ID: task.id, Name: task.name, Slot: slotOf(task) },
  };
  return { fields, functions };
}

/** A global service's task has no slot; its node stands for it, as in SwarmKit. The first slot of a job is told by its name. */
function slotOf({ id, name, nodeId, serviceName, slot }: DriverTask): string {
  return slot !== 0 || name === `${serviceName}.0.${id}` ? String(slot) : nodeId;
}

/** What the functions of a payload look up. */
export interface PayloadSources {
  /** The task's own variables, expanded. */
  readonly env: Readonly<Record<string, string>>;
  /** By the name of the file that the task asked for; null when it asked for none such. */
  readonly secret: (target: string) => string | null;
  readonly config: (target: string) => string | null;
}

/**
 * For the content of a secret or config. SwarmKit leaves the node's hostname and platform empty here, though they are known;
 * here they are told.
 */
export function payloadContext(task: DriverTask, { config, env, secret }: PayloadSources): TemplateContext {
  const found = (noun: string, target: string, content: string | null): string => {
    if (content === null) throw new TemplateError(`the task has no ${noun} with the target '${target}'`);
    return content;
  };
  return {
    fields: taskContext(task).fields,
    functions: {
      ...functions,
      // A variable that the task lacks is empty, as in SwarmKit.
      env: (name = "") => env[name] ?? "",
      secret: (target = "") => found("secret", target, secret(target)),
      config: (target = "") => found("config", target, config(target)),
    },
  };
}
