/**
 * What templates of a task may name: SwarmKit's contexts. In the environment that is the service, the node and the task; in
 * the content of secrets and configs also the task's environment and its other files.
 */
import { TemplateBudget } from "./budget.ts";
import { joined } from "./functions.ts";
import type { TemplateFunctions } from "./template.ts";

/** What of a task its templates can name. */
export interface TemplatedTask {
  readonly id: string;
  readonly name: string;
  readonly slot: number;
  readonly serviceId: string;
  readonly serviceName: string;
  readonly serviceLabels: Readonly<Record<string, string>>;
  readonly nodeId: string;
  readonly nodeHostname: string;
  readonly nodePlatform: { readonly architecture: string; readonly os: string };
}

export interface TemplateContext {
  /** What `.` is: fields by Go's names. */
  readonly data: unknown;
  readonly functions: TemplateFunctions;
  /** All templates of the task that are expanded in this context share it. */
  readonly budget: TemplateBudget;
}

/**
 * What expanding a task's templates may cost the node: about 0.1 s, and as much text as two of the largest configs. Five times
 * the steps that the manager allows when it tries them, so that what it accepted is not refused later.
 */
const taskBudget = { steps: 500_000, output: 2 * 1_024_000 };

function text(value: unknown, what: string): string {
  if (typeof value !== "string") throw new Error(`${what} must be a text`);
  return value;
}

/** `join` takes the separator first, as SwarmKit's does. */
export const taskFunctions: TemplateFunctions = {
  join: (separator, ...texts) =>
    joined(
      texts.map((each) => text(each, "each value")),
      text(separator, "the separator"),
    ),
};

/** For the environment. */
export function taskContext(task: TemplatedTask): TemplateContext {
  const data = {
    Service: { ID: task.serviceId, Name: task.serviceName, Labels: new Map(Object.entries(task.serviceLabels)) },
    Node: {
      ID: task.nodeId,
      Hostname: task.nodeHostname,
      Platform: { Architecture: task.nodePlatform.architecture, OS: task.nodePlatform.os },
    },
    Task: { ID: task.id, Name: task.name, Slot: slotOf(task) },
  };
  return { data, functions: taskFunctions, budget: new TemplateBudget(taskBudget) };
}

/** A global service's task has no slot; its node stands for it, as in SwarmKit. The first slot of a job is told by its name. */
function slotOf({ id, name, nodeId, serviceName, slot }: TemplatedTask): string {
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
export function payloadContext(task: TemplatedTask, { config, env, secret }: PayloadSources): TemplateContext {
  const { budget, data } = taskContext(task);
  const target = (noun: string, of: (target: string) => string | null) => (name: unknown) => {
    const content = of(text(name, "the target"));
    if (content === null) throw new Error(`the task has no ${noun} with the target '${String(name)}'`);
    return content;
  };
  const variable = (name: unknown): string => {
    const named = text(name, "the name");
    // A variable that the task lacks is empty, as in SwarmKit.
    return Object.hasOwn(env, named) ? (env[named] ?? "") : "";
  };
  return {
    data,
    budget,
    functions: { ...taskFunctions, env: variable, secret: target("secret", secret), config: target("config", config) },
  };
}
