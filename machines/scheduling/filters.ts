/**
 * Whether a node can run a task. The filters run in SwarmKit's order (manager semantics §4.2), and a node is counted for the
 * first one that fails, as in SwarmKit's texts.
 */
import {
  Mount_Type,
  type GenericResource,
  type Node,
  type Platform,
  type Task,
  type TaskSpec,
} from "../../proto/gen/messages.ts";
import { driversOf } from "../driver/labels.ts";
import { isDriverSpec } from "../driver/spec.ts";
import { constraintsOf, meetsConstraint, type Constraint } from "./constraints.ts";
import type { GenericWant } from "./generic-resources.ts";
import { hostPortsOf } from "./node-set.ts";
import { type NodeInfo } from "./tracked.ts";
import { runsOneOf } from "./platforms.ts";
import type { Plugins } from "./plugins.ts";
import { volumeWantsOf, type VolumeWant } from "./volumes.ts";

/** `fits`, or the filter that failed; the numbers are array indices. */
export const Verdict = {
  fits: 0,
  notReady: 1,
  resources: 2,
  plugin: 3,
  constraint: 4,
  platform: 5,
  hostPort: 6,
  maxReplicas: 7,
  volumes: 8,
} as const;
export type Verdict = (typeof Verdict)[keyof typeof Verdict];
export const verdictCount = 9;

/** The requirements of all tasks of a group for a node. */
export interface Demand {
  readonly serviceId: string;
  readonly nanoCpus: number;
  readonly memoryBytes: number;
  readonly generic: readonly GenericWant[];
  /** Required plugins as `Type/name`. */
  readonly plugins: readonly string[];
  /** `Log/name`, required only of nodes that list log drivers; empty: none. */
  readonly logPlugin: string;
  /** A container task: a Muster agent without an engine cannot run it. */
  readonly isContainer: boolean;
  /** The routing mesh publishes its ports. */
  readonly isInMesh: boolean;
  readonly constraints: readonly Constraint[];
  readonly platforms: readonly Platform[];
  readonly hostPorts: readonly number[];
  /** Maximum tasks of the service per node; 0: unlimited. */
  readonly maxReplicas: number;
  /** Mounts of cluster volumes. */
  readonly volumes: readonly VolumeWant[];
}

/** Generic kinds that engines run without advertising a driver: managed engine plugins. */
const engineKinds: ReadonlySet<string> = new Set(["plugin"]);

/** The missing plugin for containers of an agent without a healthy docker driver. */
export const enginePlugin = "an engine for containers";
/** No agent has it: only engines provide the routing mesh. */
export const meshPlugin = "Network/ingress of an agent";

/** The task's requirements. Reserved CPU in 10^-9 cores, reserved memory in bytes; 0: none. */
export function demandOf(task: Task): Demand {
  const spec = task.spec;
  const reserved = spec?.resources?.reservations ?? null;
  const container = spec?.container ?? null;
  const generic = spec?.generic ?? null;
  const plugins = new Set<string>();
  for (const mount of container?.mounts ?? []) {
    const driver = mount.type === Mount_Type.VOLUME ? (mount.volumeOptions?.driverConfig?.name ?? "") : "";
    if (driver !== "" && driver !== "local") plugins.add(`Volume/${driver}`);
  }
  const isDriven = generic?.kind === "exec" || isDriverSpec(generic?.payload?.type_url ?? "");
  const isInMesh = task.networks.some(({ network }) => network?.spec?.ingress === true);
  for (const { network } of task.networks) {
    const driver = network?.driverState?.name ?? "";
    // Engines run no driver tasks, so no node has the mesh for these.
    if (driver !== "") plugins.add(network?.spec?.ingress === true && isDriven ? meshPlugin : `Network/${driver}`);
  }
  if (generic !== null && !engineKinds.has(generic.kind)) plugins.add(`Driver/${generic.kind}`);
  const log = (spec?.logDriver ?? task.logDriver)?.name ?? "";
  return {
    serviceId: task.serviceId,
    nanoCpus: reserved?.nanoCpus ?? 0,
    memoryBytes: reserved?.memoryBytes ?? 0,
    generic: genericWants(reserved?.generic ?? []),
    plugins: [...plugins],
    logPlugin: log === "" || log === "none" ? "" : `Log/${log}`,
    isContainer: generic === null || engineKinds.has(generic.kind),
    isInMesh,
    constraints: constraintsOf(spec?.placement ?? null),
    platforms: spec?.placement?.platforms ?? [],
    hostPorts: hostPortsOf(task),
    maxReplicas: spec?.placement?.maxReplicas ?? 0,
    volumes: volumeWantsOf(task),
  };
}

const nothing: readonly never[] = Object.freeze([]);

/** Repeated kinds add up. */
function genericWants(reserved: readonly GenericResource[]): readonly GenericWant[] {
  if (reserved.length === 0) return nothing;
  const counts = new Map<string, number>();
  for (const { discreteResourceSpec: wanted } of reserved)
    if (wanted !== null && wanted.value > 0) counts.set(wanted.kind, (counts.get(wanted.kind) ?? 0) + wanted.value);
  return Array.from(counts, ([kind, count]) => ({ kind, count }));
}

const specKeys = new WeakMap<TaskSpec, string>();

/** Equal for tasks of one service with the same requirements: they can be placed as one group. */
export function demandKey(task: Task): string {
  const { serviceId, specVersion, spec } = task;
  let key = serviceId !== "" && specVersion !== null ? `${serviceId}/${specVersion.index}` : looseKey(task);
  // Fields beside the spec. Equal for all tasks of a version, unless a default or an allocation has changed.
  for (const { network } of task.networks)
    key += `/${network?.driverState?.name ?? ""}${network?.spec?.ingress === true ? "!" : ""}`;
  for (const port of hostPortsOf(task)) key += `:${port}`;
  if (task.logDriver !== null && spec?.logDriver == null) key += `>${task.logDriver.name}`;
  return key;
}

/** Thousands of tasks may have no service or version, so these are grouped by their requirements. */
function looseKey(task: Task): string {
  const { serviceId, spec } = task;
  if (spec === null) return `${serviceId}/`;
  let key = specKeys.get(spec);
  if (key === undefined) {
    const { container, generic, resources, placement, logDriver } = spec;
    const mounts = container?.mounts.map(({ type, source, target, readonly, volumeOptions }) => [
      type,
      source,
      target,
      readonly,
      volumeOptions?.driverConfig?.name,
    ]);
    key = JSON.stringify([
      generic?.kind,
      mounts ?? volumeWantsOf(task),
      resources?.reservations,
      placement,
      logDriver?.name,
    ]);
    specKeys.set(spec, key);
  }
  return `${serviceId}/${key}`;
}

/** The first filter that fails, in SwarmKit's order, or `fits`. */
export function judge(demand: Demand, info: NodeInfo): Verdict {
  const { node } = info;
  if (node === null || !info.isReady) return Verdict.notReady;
  if (!hasResources(demand, info)) return Verdict.resources;
  if (missingPlugin(demand, info) !== null) return Verdict.plugin;
  for (const constraint of demand.constraints) if (!meetsConstraint(constraint, node)) return Verdict.constraint;
  if (demand.platforms.length > 0 && !runsOneOf(demand.platforms, node.description?.platform ?? null))
    return Verdict.platform;
  return judgeCapacity(demand, info);
}

/** The filters that one more task on the node can change, for a node that passed the others. */
export function judgeCapacity(demand: Demand, info: NodeInfo): Verdict {
  if (!hasResources(demand, info)) return Verdict.resources;
  for (const port of demand.hostPorts) if (info.hasHostPort(port)) return Verdict.hostPort;
  if (demand.maxReplicas > 0 && info.activeOf(demand.serviceId) >= demand.maxReplicas) return Verdict.maxReplicas;
  if (demand.volumes.length > 0 && info.node !== null && info.volumes.choose(demand.volumes, info.node) === null)
    return Verdict.volumes;
  return Verdict.fits;
}

function hasResources(demand: Demand, info: NodeInfo): boolean {
  if (demand.nanoCpus > 0 && demand.nanoCpus > info.freeNanoCpus) return false;
  if (demand.memoryBytes > 0 && demand.memoryBytes > info.freeMemoryBytes) return false;
  return demand.generic.length === 0 || info.generic?.has(demand.generic) === true;
}

/** The first required plugin that the node lacks; null if it has all. A node that reports nothing about its engine passes. */
export function missingPlugin(demand: Demand, { node, plugins }: Pick<NodeInfo, "node" | "plugins">): string | null {
  if (plugins === null) return null;
  for (const wanted of demand.plugins) if (!hasPlugin(plugins, wanted)) return wanted;
  if (demand.isContainer && (plugins.hasDrivers || (!plugins.hasEngine && isAgent(node)))) {
    if (!plugins.hasEngine) return enginePlugin;
    if (demand.isInMesh) return meshPlugin;
  }
  if (demand.logPlugin !== "" && plugins.hasLogs && !hasPlugin(plugins, demand.logPlugin)) return demand.logPlugin;
  return null;
}

/** The node reports drivers, healthy or not. */
function isAgent(node: Node | null): boolean {
  return driversOf(node?.description?.engine?.labels ?? {}).length > 0;
}

/** A name without a tag also matches the tag `latest`. */
function hasPlugin({ names }: Plugins, wanted: string): boolean {
  return names.has(wanted) || (!wanted.includes(":") && names.has(`${wanted}:latest`));
}
