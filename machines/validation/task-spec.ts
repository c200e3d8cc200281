/** Checks a task's resources, restart policy, placement, references and runtime, in this order. */
import {
  DriverSpec,
  ExecSpec,
  Mount_Type,
  type ContainerSpec,
  type Duration,
  type GenericRuntimeSpec,
  type HealthConfig,
  type Resources,
  type ResourceRequirements,
  type RestartPolicy,
  type TaskSpec,
} from "../../proto/gen/messages.ts";
import { durationMs } from "../../proto/time.ts";
import { mountsProblem } from "../driver/mounts.ts";
import { isDriverSpec } from "../driver/spec.ts";
import { isImageReference } from "../image-reference.ts";
import { parseAddress } from "../../lib/ip-address.ts";
import { checkHealthCheck } from "./health.ts";
import { checkPlacement } from "./placement.ts";
import { checkConfigReferences, checkProcessFiles, checkSecretReferences } from "./reference.ts";
import { firstRefusal, invalid, refuse, type Refusal } from "../refusal.ts";
import { checkTemplates, triedTexts, triedVariables } from "./template.ts";

/** A thousandth of a core, in units of 10^-9 cores: the finest share that the kernel's CPU quota resolves well. */
const nanoCpusMin = 1_000_000;
/** The engine's minimum for a container. */
const memoryBytesMin = 4 * 1024 * 1024;
/** The engine's minimum interval for health checks, in milliseconds. */
const healthMsMin = 1;
const genericKindLengthMin = 3;

/** True for a count that was negative before it was encoded as an unsigned number. */
export function wasNegative(count: number): boolean {
  return count >= 2 ** 63 || count < 0;
}

export function isNegative(duration: Duration | null): boolean {
  return duration !== null && (duration.seconds < 0 || duration.nanos < 0);
}

/** Formats a float like Go's %g, as SwarmKit's message does. */
function shortest(value: number): string {
  return value !== 0 && Math.abs(value) < 1e-4
    ? value.toExponential().replace(/e([+-])(\d)$/, "e$10$2")
    : String(value);
}

function checkAmounts(resources: Resources | null): Refusal | null {
  if (resources === null) return null;
  const { nanoCpus, memoryBytes, generic } = resources;
  if (nanoCpus !== 0 && nanoCpus < nanoCpusMin) {
    return invalid(`invalid cpu value ${shortest(nanoCpus / 1e9)}: Must be at least 0.001`);
  }
  if (memoryBytes !== 0 && memoryBytes < memoryBytesMin) {
    return invalid(`invalid memory value ${memoryBytes}: Must be at least 4MiB`);
  }
  for (const { namedResourceSpec, discreteResourceSpec } of generic) {
    if (namedResourceSpec !== null || discreteResourceSpec === null) {
      return invalid("a service can only request generic resources by count, not by name");
    }
    if (discreteResourceSpec.kind === "" || discreteResourceSpec.value <= 0) {
      return invalid(`invalid generic resource '${discreteResourceSpec.kind}=${discreteResourceSpec.value}'`);
    }
  }
  return null;
}

function checkResources(resources: ResourceRequirements | null): Refusal | null {
  return checkAmounts(resources?.limits ?? null) ?? checkAmounts(resources?.reservations ?? null);
}

function checkRestart(restart: RestartPolicy | null): Refusal | null {
  if (isNegative(restart?.delay ?? null)) return invalid("TaskSpec: restart-delay cannot be negative");
  if (isNegative(restart?.window ?? null)) return invalid("TaskSpec: restart-window cannot be negative");
  // SwarmKit reads it as a large number; re-encoded here it would become 0, which means no limit (maxReplicas likewise).
  if (wasNegative(restart?.maxAttempts ?? 0)) return invalid("TaskSpec: restart-max-attempts cannot be negative");
  return null;
}

function checkHealth(health: HealthConfig | null): Refusal | null {
  if (health === null) return null;
  const durations: readonly (readonly [string, Duration | null])[] = [
    ["Interval", health.interval],
    ["Timeout", health.timeout],
    ["StartPeriod", health.startPeriod],
    ["StartInterval", health.startInterval],
  ];
  for (const [name, duration] of durations) {
    if (duration === null) continue;
    const ms = durationMs(duration, 0);
    if (ms !== 0 && ms < healthMsMin) return invalid(`ContainerSpec: ${name} in HealthConfig cannot be less than 1ms`);
  }
  if (health.retries < 0) return invalid("ContainerSpec: Retries in HealthConfig cannot be negative");
  return null;
}

function checkContainer(container: ContainerSpec): Refusal | null {
  if (container.image === "") return invalid("ContainerSpec: image reference must be provided");
  if (!isImageReference(container.image)) {
    return invalid(`ContainerSpec: "${container.image}" is not a valid repository/tag`);
  }
  const targets = new Set<string>();
  for (const { target } of container.mounts) {
    if (targets.has(target)) return invalid(`ContainerSpec: duplicate mount point: ${target}`);
    targets.add(target);
  }
  return checkHealth(container.healthcheck) ?? checkTemplates(triedTexts(container));
}

/** A process sees the node's own files anyway, so only cluster volumes can be mounted for it. */
function checkProcessMounts({ mounts }: ExecSpec): Refusal | null {
  const targets = new Set<string>();
  for (const { source, target, type } of mounts) {
    if (type !== Mount_Type.CLUSTER)
      return invalid("Generic runtime: invalid mount type: processes can mount only cluster volumes");
    if (source === "") return invalid("Generic runtime: mount has no source: expected the name of a cluster volume");
    const path = target.replaceAll(/^\/+|\/+$/g, "");
    const isPath = path !== "" && path.split("/").every((part) => !["", ".", ".."].includes(part));
    if (!isPath)
      return invalid(`Generic runtime: invalid mount target "${target}": expected a path without "." or ".."`);
    if (targets.has(path)) return invalid(`Generic runtime: duplicate mount point: ${target}`);
    targets.add(path);
  }
  return null;
}

/** Engines do not check these. Each value becomes a word of the resolv.conf that drivers write. */
function checkDns({ dns }: ExecSpec | DriverSpec): Refusal | null {
  const server = dns?.nameservers.find((text) => parseAddress(text) === null);
  if (server !== undefined) return invalid(`Generic runtime: invalid name server "${server}": expected an IP address`);
  const word = [...(dns?.search ?? []), ...(dns?.options ?? [])].find((text) => !/^[^\s#;]+$/.test(text));
  return word === undefined
    ? null
    : invalid(`Generic runtime: invalid DNS search domain or option "${word}": expected one word without "#" or ";"`);
}

/** Plain processes: the one generic runtime with a payload defined by Muster. */
function checkExec(payload: Uint8Array, task: TaskSpec): Refusal | null {
  let spec: ExecSpec;
  try {
    spec = ExecSpec.decode(payload);
  } catch {
    return invalid('Generic runtime: the payload of kind "exec" is not a muster.v1.ExecSpec');
  }
  if (spec.command === "") return invalid('Generic runtime: kind "exec" requires a command');
  if (isNegative(spec.stopGracePeriod)) return invalid("Generic runtime: stop-grace-period cannot be negative");
  const malformed = spec.env.find((entry) => entry.indexOf("=") < 1);
  if (malformed !== undefined) return invalid(`Generic runtime: environment variable "${malformed}" is not NAME=value`);
  return (
    checkProcessMounts(spec) ??
    checkHealthCheck(spec.health) ??
    checkDns(spec) ??
    checkProcessFiles(spec, task) ??
    checkTemplates(triedVariables(spec.env))
  );
}

function checkDriverMounts({ devices, mounts }: DriverSpec): Refusal | null {
  const problem = mountsProblem(mounts, devices);
  return problem === null ? null : invalid(`Generic runtime: ${problem}`);
}

/** Checks the fields common to all drivers; the driver itself checks its configuration. */
function checkDriver(payload: Uint8Array, task: TaskSpec): Refusal | null {
  let spec: DriverSpec;
  try {
    spec = DriverSpec.decode(payload);
  } catch {
    return invalid("Generic runtime: the payload is not a muster.v1.DriverSpec");
  }
  if (spec.config !== "" && !isObject(spec.config))
    return invalid("Generic runtime: the driver's configuration is not a JSON object");
  if (isNegative(spec.stopGracePeriod)) return invalid("Generic runtime: stop-grace-period cannot be negative");
  const malformed = spec.env.find((entry) => entry.indexOf("=") < 1);
  if (malformed !== undefined) return invalid(`Generic runtime: environment variable "${malformed}" is not NAME=value`);
  return (
    checkHealthCheck(spec.health) ??
    checkDriverMounts(spec) ??
    checkDns(spec) ??
    checkProcessFiles(spec, task) ??
    checkTemplates(triedVariables(spec.env))
  );
}

function isObject(text: string): boolean {
  try {
    const value = JSON.parse(text) as unknown;
    return typeof value === "object" && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}

function checkGeneric({ kind, payload }: GenericRuntimeSpec, task: TaskSpec): Refusal | null {
  if (kind.length < genericKindLengthMin) return invalid(`Generic runtime: Invalid name "${kind}"`);
  if (kind === "container" || kind === "attachment") return invalid(`Generic runtime: "${kind}" is a reserved name`);
  if (payload === null) return invalid("Generic runtime is missing payload");
  if (payload.type_url === "") return invalid("Generic runtime is missing payload type");
  if (payload.value.length === 0) return invalid("Generic runtime has an empty payload");
  if (isDriverSpec(payload.type_url)) return checkDriver(payload.value, task);
  return kind === "exec" ? checkExec(payload.value, task) : null;
}

export function checkRuntime(task: TaskSpec): Refusal | null {
  if (task.attachment !== null) return refuse("unimplemented", "RuntimeSpec: unimplemented runtime in service spec");
  if (task.container !== null) return checkContainer(task.container);
  if (task.generic !== null) return checkGeneric(task.generic, task);
  return invalid("TaskSpec: missing runtime");
}

/** Returns the first failure. */
export function checkTaskSpec(task: TaskSpec): Refusal | null {
  return firstRefusal(
    () => checkResources(task.resources),
    () => checkRestart(task.restart),
    () => checkPlacement(task.placement),
    () =>
      wasNegative(task.placement?.maxReplicas ?? 0)
        ? invalid("TaskSpec: replicas-max-per-node cannot be negative")
        : null,
    () => checkSecretReferences(task.container),
    () => checkConfigReferences(task.container),
    () => checkRuntime(task),
  );
}
