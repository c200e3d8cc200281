/** The environment of a task on a driver plugin: the variables that Nomad's drivers rely on, and the service's own. */
import type { DriverTask } from "../../actors/agent/ports.ts";
import type { DriverSpec, GenericResource } from "../../proto/gen/messages.ts";
import { taskContext } from "../../lib/template/task-context.ts";
import { expand } from "../../lib/template/expand.ts";

/** A task inherits only PATH, HOME and LANG from the agent's environment; Nomad passes on nearly all of it. */
export type AgentEnvironment = Readonly<Record<string, string | undefined>>;

type EnvironmentOutcome =
  | { readonly kind: "env"; readonly env: Readonly<Record<string, string>> }
  | { readonly kind: "refused"; readonly reason: string };

interface EnvironmentFacts {
  readonly agent: AgentEnvironment;
  readonly name: string;
  /** The task has its own root file system, and with it its own PATH. */
  readonly isImage: boolean;
  /** It gets only what its spec says. */
  readonly isBare: boolean;
  readonly directories: TaskDirectories;
}

/** Paths as the task sees them. */
export interface TaskDirectories {
  readonly alloc: string;
  readonly local: string;
  readonly secrets: string;
  readonly configs: string;
  /** The folder of its cluster volumes. */
  readonly volumes: string;
}

const mebibyte = 1024 * 1024;

export function environmentOf(
  task: DriverTask,
  { env: entries, user }: DriverSpec,
  { agent, directories, isBare, isImage, name }: EnvironmentFacts,
): EnvironmentOutcome {
  const env: Record<string, string> = {};
  for (const inherited of isImage ? [] : ["PATH", "HOME", "LANG"]) {
    const value = agent[inherited];
    // The driver looks up the home of another user.
    if (value !== undefined && (inherited !== "HOME" || user === "")) env[inherited] = value;
  }
  if (!isBare) Object.assign(env, variablesOf(task, name, directories));
  if (!isImage) Object.assign(env, fileVariables(directories));
  const context = taskContext(task);
  for (const entry of entries) {
    const [, variable, text] = /^([^=\0]+)=([^\0]*)$/s.exec(entry) ?? [];
    if (variable === undefined || text === undefined)
      return { kind: "refused", reason: `invalid environment entry '${entry}': expected NAME=value` };
    const expansion = expand(text, context);
    if (expansion.kind === "failed")
      return { kind: "refused", reason: `the template of ${variable} cannot be expanded: ${expansion.reason}` };
    env[variable] = interpolated(expansion.text, { ...nodeVariables(task), ...env });
  }
  // As in an engine, after the service's own variables.
  return { kind: "env", env: { ...env, ...resourceVariables(task.genericResources ?? []) } };
}

/** Names of the units, or else their number: `DOCKER_RESOURCE_GPU=a,b`. */
function resourceVariables(resources: readonly GenericResource[]): Record<string, string> {
  const env: Record<string, string> = {};
  for (const { discreteResourceSpec: counted, namedResourceSpec: named } of resources) {
    const variable = `DOCKER_RESOURCE_${(named ?? counted)?.kind.toUpperCase()}`;
    if (named !== null) env[variable] = env[variable] === undefined ? named.value : `${env[variable]},${named.value}`;
    else if (counted !== null) env[variable] = String(counted.value);
  }
  return env;
}

/** Variables for `${…}` in addition to the environment: Nomad's names for the node. */
function nodeVariables({ nodeHostname, nodeId, nodePlatform }: DriverTask): Readonly<Record<string, string>> {
  return {
    "node.unique.id": nodeId,
    "node.unique.name": nodeHostname,
    "attr.cpu.arch": nodePlatform.architecture,
    "attr.kernel.name": nodePlatform.os,
  };
}

/** Unknown names stay unchanged, since a shell may know them. `$${` stands for `${`. */
function interpolated(text: string, known: Readonly<Record<string, string>>): string {
  return text.replaceAll(/\$\$\{|\$\{([A-Za-z_][\w.]*)\}/g, (whole, name?: string) => {
    if (name === undefined) return "${";
    return Object.hasOwn(known, name) ? (known[name] as string) : whole;
  });
}

/** Tells a process where to find what containers have at fixed paths. */
function fileVariables({ configs, secrets, volumes }: TaskDirectories): Record<string, string> {
  return { MUSTER_SECRETS: secrets, MUSTER_CONFIGS: configs, MUSTER_VOLUMES: volumes };
}

function variablesOf(
  task: DriverTask,
  name: string,
  { alloc, local, secrets }: TaskDirectories,
): Record<string, string> {
  const { id, resources, serviceId, serviceName, slot, traceparent } = task;
  const memory = resources?.memoryLimitBytes || resources?.memoryBytes || 0;
  return {
    NOMAD_ALLOC_DIR: alloc,
    NOMAD_TASK_DIR: local,
    NOMAD_SECRETS_DIR: secrets,
    NOMAD_ALLOC_ID: id,
    NOMAD_SHORT_ALLOC_ID: id.slice(0, 8),
    NOMAD_ALLOC_NAME: task.name,
    // Nomad's index starts at 0, slots at 1.
    NOMAD_ALLOC_INDEX: String(Math.max(0, slot - 1)),
    NOMAD_TASK_NAME: name,
    NOMAD_GROUP_NAME: serviceName,
    NOMAD_JOB_ID: serviceId,
    NOMAD_JOB_NAME: serviceName,
    NOMAD_NAMESPACE: "default",
    NOMAD_REGION: "global",
    ...(memory > 0 ? { NOMAD_MEMORY_LIMIT: String(Math.floor(memory / mebibyte)) } : {}),
    ...(traceparent === "" ? {} : { TRACEPARENT: traceparent }),
  };
}
