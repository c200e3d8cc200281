/**
 * The data and functions of a task's templates: SwarmKit's contexts. In the environment, these are the service, the node and
 * the task; in the content of secrets and configs also the task's environment and its other files.
 */
import { TemplateBudget } from "./budget.ts";
import { joined } from "./functions.ts";
import type { TemplateFunctions } from "./template.ts";

/** The task's properties that its templates can use. */
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
  /** The value of `.`: fields by Go's names. */
  readonly data: unknown;
  readonly functions: TemplateFunctions;
  /** Shared by all templates of the task that are expanded in this context. */
  readonly budget: TemplateBudget;
}

/**
 * Limits the cost of expanding a task's templates on the node: about 0.1 s, and as much text as two of the largest configs.
 * Five times the manager's limit when it validates them, so that accepted templates do not fail later.
 */
const taskBudget = { steps: 500_000, output: 2 * 1_024_000 };

function text(value: unknown, what: string): string {
  if (typeof value !== "string") throw new Error(`${what} must be a string`);
  return value;
}

/** `join` takes the separator first, as in SwarmKit. */
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

/**
 * A global service's task has no slot; its node's id is used instead, as in SwarmKit. The first slot of a job is recognized by
 * its name.
 */
function slotOf({ id, name, nodeId, serviceName, slot }: TemplatedTask): string {
  return slot !== 0 || name === `${serviceName}.0.${id}` ? String(slot) : nodeId;
}

/** Values for the functions of a payload. */
interface PayloadSources {
  /** The task's own variables, expanded. */
  readonly env: Readonly<Record<string, string>>;
  /** By the name of the task's file; null if the task has no such file. */
  readonly secret: (target: string) => string | null;
  readonly config: (target: string) => string | null;
}

/**
 * For the content of a secret or config. SwarmKit leaves the node's hostname and platform empty here, although it knows them;
 * Muster fills them in.
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
    // A missing variable is empty, as in SwarmKit.
    return Object.hasOwn(env, named) ? (env[named] ?? "") : "";
  };
  return {
    data,
    budget,
    functions: { ...taskFunctions, env: variable, secret: target("secret", secret), config: target("config", config) },
  };
}
