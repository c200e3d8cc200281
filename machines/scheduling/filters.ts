/**
 * Whether a node can take a task. The filters are asked in SwarmKit's order (manager semantics §4.2) and the first that
 * says no is charged with the node: the texts of explanations rest on that.
 */
import {
  Mount_Type,
  type GenericResource,
  type Node,
  type Platform,
  type Task,
  type TaskSpec,
} from "../../proto/gen/messages.ts";
import { driversOf } from "../driver/driver-labels.ts";
import { isDriverSpec } from "../driver/driver-spec.ts";
import { constraintsOf, meetsConstraint, type Constraint } from "./constraints.ts";
import type { GenericWant } from "./generic-resources.ts";
import { hostPortsOf, type NodeInfo } from "./node-set.ts";
import { runsOneOf } from "./platforms.ts";
import type { Plugins } from "./plugins.ts";
import { volumeWantsOf, type VolumeWant } from "./volumes.ts";

/** `fits`, or the filter that says no; the numbers are places in lists. */
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

/** What all tasks of a group ask of a node. */
export interface Demand {
  readonly serviceId: string;
  readonly nanoCpus: number;
  readonly memoryBytes: number;
  readonly generic: readonly GenericWant[];
  /** `Type/name` of plugins that must be there. */
  readonly plugins: readonly string[];
  /** `Log/name`, asked only of nodes that list log drivers; empty: none. */
  readonly logPlugin: string;
  /** A container task; a Muster agent without an engine runs none. */
  readonly isContainer: boolean;
  /** Its ports are published by the routing mesh. */
  readonly isInMesh: boolean;
  readonly constraints: readonly Constraint[];
  readonly platforms: readonly Platform[];
  readonly hostPorts: readonly number[];
  /** Of the service on one node; 0: any number. */
  readonly maxReplicas: number;
  /** Mounts of cluster volumes. */
  readonly volumes: readonly VolumeWant[];
}

/** Engines take tasks of these generic kinds without advertising a driver: a managed engine plugin. */
const engineKinds: ReadonlySet<string> = new Set(["plugin"]);

/** What an agent without a docker driver that is well lacks for containers. */
export const enginePlugin = "an engine for containers";
/** What no agent has: the routing mesh is the engines'. */
export const meshPlugin = "Network/ingress of an agent";

/** What the filters ask of a node for this task. CPU in 10^-9 cores, memory in bytes, as reserved; 0: nothing is. */
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
    // Engines run no tasks of drivers, so that no node has it.
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

/** A kind that is named twice is wanted twice. */
function genericWants(reserved: readonly GenericResource[]): readonly GenericWant[] {
  if (reserved.length === 0) return nothing;
  const counts = new Map<string, number>();
  for (const { discreteResourceSpec: wanted } of reserved)
    if (wanted !== null && wanted.value > 0) counts.set(wanted.kind, (counts.get(wanted.kind) ?? 0) + wanted.value);
  return Array.from(counts, ([kind, count]) => ({ kind, count }));
}

const specKeys = new WeakMap<TaskSpec, string>();

/** Equal for tasks that ask the same of a node and count as one service's: they can be placed as one group. */
export function demandKey(task: Task): string {
  const { serviceId, specVersion, spec } = task;
  let key = serviceId !== "" && specVersion !== null ? `${serviceId}/${specVersion.index}` : looseKey(task);
  // What a task has beside its spec. The same for all tasks of a version, unless a default or an allocation has changed.
  for (const { network } of task.networks)
    key += `/${network?.driverState?.name ?? ""}${network?.spec?.ingress === true ? "!" : ""}`;
  for (const port of hostPortsOf(task)) key += `:${port}`;
  if (task.logDriver !== null && spec?.logDriver == null) key += `>${task.logDriver.name}`;
  return key;
}

/** Tasks of no service or version come by the thousand too: they are told apart by what they ask for. */
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

/** The first filter in SwarmKit's order that says no, or `fits`. */
export function judge(demand: Demand, info: NodeInfo): Verdict {
  const { node } = info;
  if (node === null || !info.isReady) return Verdict.notReady;
  if (!hasResources(demand, info)) return Verdict.resources;
  if (missingPlugin(demand, info) !== null) return Verdict.plugin;
  for (const constraint of demand.constraints) if (!meetsConstraint(constraint, node)) return Verdict.constraint;
  if (demand.platforms.length > 0 && !runsOneOf(demand.platforms, node.description?.platform ?? null))
    return Verdict.platform;
  return judgeRoom(demand, info);
}

/** The filters that one more task on the node can change, of a node that passed the others. */
export function judgeRoom(demand: Demand, info: NodeInfo): Verdict {
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

/** The first plugin that the task needs and the node lacks; null when it has all. A node that says nothing of its engine passes. */
export function missingPlugin(demand: Demand, { node, plugins }: NodeInfo): string | null {
  if (plugins === null) return null;
  for (const wanted of demand.plugins) if (!hasPlugin(plugins, wanted)) return wanted;
  if (demand.isContainer && (plugins.hasDrivers || (!plugins.hasEngine && isAgent(node)))) {
    if (!plugins.hasEngine) return enginePlugin;
    if (demand.isInMesh) return meshPlugin;
  }
  if (demand.logPlugin !== "" && plugins.hasLogs && !hasPlugin(plugins, demand.logPlugin)) return demand.logPlugin;
  return null;
}

/** It tells of drivers, though perhaps of none that is well. */
function isAgent(node: Node | null): boolean {
  return driversOf(node?.description?.engine?.labels ?? {}).length > 0;
}

/** A name without a tag also means its latest one. */
function hasPlugin({ names }: Plugins, wanted: string): boolean {
  return names.has(wanted) || (!wanted.includes(":") && names.has(`${wanted}:latest`));
}
