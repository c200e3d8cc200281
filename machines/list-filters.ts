/** Which objects pass a list request's filters: within one filter, any value may match; all given filters must match. */
import {
  NodeRole,
  NodeSpec_Membership,
  TaskState,
  type ListNodesRequest_Filters,
  type ListResourcesRequest_Filters,
  type ListServicesRequest_Filters,
  type ListTasksRequest_Filters,
  type ListVolumesRequest_Filters,
  type Node,
  type Resource,
  type Service,
  type Task,
  type TaskSpec,
  type Volume,
} from "../proto/gen/messages.ts";
import { isNodeBound } from "./task.ts";

type Labels = { readonly [key: string]: string };

interface CommonFilters {
  readonly names: readonly string[];
  readonly idPrefixes: readonly string[];
  readonly namePrefixes: readonly string[];
  readonly labels: Labels;
}

interface Named {
  readonly id: string;
  readonly name: string;
  readonly labels: Labels;
}

function isOneOf<Value>(values: readonly Value[], value: Value): boolean {
  return values.length === 0 || values.includes(value);
}

function hasPrefix(prefixes: readonly string[], text: string): boolean {
  return prefixes.length === 0 || prefixes.some((prefix) => text.startsWith(prefix));
}

/** Every key must exist; an empty wanted value matches any. */
function hasLabels(wanted: Labels, labels: Labels): boolean {
  return Object.entries(wanted).every(
    ([key, value]) => Object.hasOwn(labels, key) && (value === "" || labels[key] === value),
  );
}

export function matchesCommon(filters: CommonFilters, { id, name, labels }: Named): boolean {
  return (
    isOneOf(filters.names, name) &&
    hasPrefix(filters.namePrefixes, name) &&
    hasPrefix(filters.idPrefixes, id) &&
    hasLabels(filters.labels, labels)
  );
}

/** For secrets, configs and resources, names, prefixes and ids are alternatives, and case does not matter. */
export function matchesEither(filters: CommonFilters, { id, name, labels }: Named): boolean {
  const { names, namePrefixes, idPrefixes } = filters;
  const isAny = names.length + namePrefixes.length + idPrefixes.length === 0;
  const lower = name.toLowerCase();
  const isFound =
    names.some((wanted) => wanted.toLowerCase() === lower) ||
    namePrefixes.some((prefix) => lower.startsWith(prefix.toLowerCase())) ||
    idPrefixes.some((prefix) => id.startsWith(prefix));
  return (isAny || isFound) && hasLabels(filters.labels, labels);
}

export function matchesResource(filters: ListResourcesRequest_Filters, resource: Resource): boolean {
  const { name = "", labels = {} } = resource.annotations ?? {};
  const isOfKind = filters.kind === "" || filters.kind === resource.kind;
  return isOfKind && matchesEither(filters, { id: resource.id, name, labels });
}

/** `container`, `attachment`, or the kind of a generic runtime. */
export function runtimeOf(task: TaskSpec | null): string {
  if (task?.attachment != null) return "attachment";
  if (task?.generic != null) return task.generic.kind;
  return "container";
}

/**
 * A task's display name: its own name if it has one, else `<service>.<slot>.<id>`, or `<service>.<node>.<id>` for a
 * global one.
 */
export function taskName(task: Task): string {
  const own = task.annotations?.name ?? "";
  if (own !== "") return own;
  return `${task.serviceAnnotations?.name ?? ""}.${isNodeBound(task) ? task.nodeId : task.slot}.${task.id}`;
}

export function matchesNode(filters: ListNodesRequest_Filters, node: Node): boolean {
  const named = {
    id: node.id,
    name: node.description?.hostname ?? "",
    labels: node.description?.engine?.labels ?? {},
  };
  return (
    matchesCommon(filters, named) &&
    hasLabels(filters.nodeLabels, node.spec?.annotations?.labels ?? {}) &&
    isOneOf(filters.roles, node.role) &&
    isOneOf(filters.memberships, node.spec?.membership ?? NodeSpec_Membership.PENDING)
  );
}

export function matchesService(filters: ListServicesRequest_Filters, service: Service): boolean {
  const annotations = service.spec?.annotations;
  return (
    matchesCommon(filters, { id: service.id, name: annotations?.name ?? "", labels: annotations?.labels ?? {} }) &&
    isOneOf(filters.runtimes, runtimeOf(service.spec?.task ?? null))
  );
}

/** Calls `isUpToDate` only if the filter needs it. */
export function matchesTask(
  filters: ListTasksRequest_Filters,
  task: Task,
  isUpToDate: (task: Task) => boolean,
): boolean {
  const isNamed = filters.names.length + filters.namePrefixes.length > 0;
  const name = isNamed ? taskName(task) : "";
  return (
    isOneOf(filters.serviceIds, task.serviceId) &&
    isOneOf(filters.nodeIds, task.nodeId) &&
    isOneOf(filters.desiredStates, task.desiredState) &&
    matchesCommon(filters, { id: task.id, name, labels: task.serviceAnnotations?.labels ?? {} }) &&
    isOneOf(filters.runtimes, runtimeOf(task.spec)) &&
    (!filters.upToDate || isUpToDate(task))
  );
}

export function matchesVolume(filters: ListVolumesRequest_Filters, volume: Volume): boolean {
  const annotations = volume.spec?.annotations;
  return (
    matchesCommon(filters, { id: volume.id, name: annotations?.name ?? "", labels: annotations?.labels ?? {} }) &&
    isOneOf(filters.groups, volume.spec?.group ?? "") &&
    isOneOf(filters.drivers, volume.spec?.driver?.name ?? "")
  );
}

/** The first filter value that no node or task can have, as an error message; null when all values are known. */
export function unknownNodeFilter(filters: ListNodesRequest_Filters): string | null {
  const role = filters.roles.find((value) => !(Object.values(NodeRole) as readonly number[]).includes(value));
  if (role !== undefined) return `unknown role ${role}`;
  const memberships = Object.values(NodeSpec_Membership) as readonly number[];
  const membership = filters.memberships.find((value) => !memberships.includes(value));
  return membership === undefined ? null : `unknown membership ${membership}`;
}

export function unknownTaskFilter(filters: ListTasksRequest_Filters): string | null {
  const states = Object.values(TaskState) as readonly number[];
  const state = filters.desiredStates.find((value) => !states.includes(value));
  return state === undefined ? null : `unknown desired state ${state}`;
}
