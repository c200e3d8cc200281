/**
 * A plan from the objects of a cluster. Rehearsed nodes have a name and labels only: a constraint on anything else, such as
 * a node's role or architecture, becomes a label of the nodes that meet it.
 */
import { isOver, progressOf } from "../../machines/orchestration/jobs/progress.ts";
import { scheduleOf } from "../../machines/orchestration/jobs/runs.ts";
import { isJob } from "../../machines/orchestration/service-mode.ts";
import { meetsConstraint, parseConstraint } from "../../machines/scheduling/constraints.ts";
import { demandOf, missingPlugin } from "../../machines/scheduling/filters.ts";
import { PluginLists } from "../../machines/scheduling/plugins.ts";
import {
  NodeRole,
  NodeSpec_Availability,
  NodeStatus_State,
  Placement,
  ServiceSpec,
  TaskSpec,
  Task,
  type Network,
  type Node,
  type Service,
} from "../../proto/gen/messages.ts";
import type { ClusterPlan, NodePlan, ServicePlan } from "../../simulation/rehearsal/plan.ts";
import { managersMax } from "./read-cluster.ts";
import { namesOf } from "./names.ts";
import type { ObservedTimes } from "./observed-times.ts";
import { unplaceable } from "./placeable.ts";
import { nodeDefaults } from "./read-nodes.ts";
import { reducedNetwork, reducedSpec } from "./reduced-spec.ts";
import { plural } from "./report-texts.ts";

export interface ClusterObjects {
  readonly nodes: readonly Node[];
  readonly services: readonly Service[];
  readonly networks: readonly Network[];
  readonly tasks: readonly Task[];
}

interface Copied {
  readonly plan: ClusterPlan;
  /** Differences from the cluster, one line each. */
  readonly remarks: readonly string[];
}

const labelPrefix = "rehearsal.";

export function copiedCluster(objects: ClusterObjects, observed: ObservedTimes): Copied {
  const remarks: string[] = [];
  const nodes = objects.nodes.filter(isUsable);
  // A manager's own node runs no tasks; the copy has managers besides its nodes.
  const omitted = objects.nodes.filter((node) => !isUsable(node) && node.role !== NodeRole.MANAGER).length;
  if (omitted > 0) remarks.push(`left out: ${plural(omitted, "node")} not READY or not active`);
  const isDone = jobsDone(objects);
  const services = objects.services.filter((service) => service.spec !== null && !isDone(service));
  const jobs = objects.services.length - services.length;
  if (jobs > 0) remarks.push(`left out: ${plural(jobs, "job")} (finished ones, and runs of scheduled jobs)`);
  const networks = objects.networks.filter(
    ({ spec }) => spec !== null && !spec.ingress && isOverlay(spec.driverConfig?.name),
  );
  const names = new Map(objects.networks.map(({ id, spec }) => [id, spec?.annotations?.name ?? id]));
  const kept = new Set(networks.map(({ spec }) => spec?.annotations?.name ?? ""));
  const labels = nodes.map(() => new Map<string, string>());
  const copies = services.map((service): ServicePlan => {
    const spec = reducedSpec(service.spec ?? ServiceSpec.create({}), (target) => names.get(target) ?? target);
    const constraints = (spec.task?.placement?.constraints ?? []).map((text) => onLabels(text, nodes, labels));
    constraints.push(...onDriver(service, nodes, labels));
    return { spec: withPlacement(spec, constraints, kept), behaviour: observed.behaviourOf(service.id, isJob(spec)) };
  });
  const plans = nodePlans(nodes, labels, observed);
  const placed = copies.filter(({ spec }) => unplaceable(spec, plans) === null);
  const unplaced = copies.length - placed.length;
  if (unplaced > 0) remarks.push(`left out: ${plural(unplaced, "service")} that none of these nodes can run`);
  const managers = objects.nodes.filter(({ role }) => role === NodeRole.MANAGER).length;
  if (managers > managersMax) remarks.push(`${managersMax} of ${managers} managers are copied`);
  return {
    plan: {
      managers: Math.min(managersMax, Math.max(1, managers)),
      nodes: plans,
      networks: networks.flatMap(({ spec }) => (spec === null ? [] : [reducedNetwork(spec)])),
      services: placed,
    },
    remarks,
  };
}

/** Jobs that have nothing to do, or that their schedule creates: in the copy, it creates its own. */
function jobsDone({ nodes, services, tasks }: ClusterObjects): (service: Service) => boolean {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const view = { nodeOf: (id: string) => byId.get(id), nodes: () => nodes };
  const known = new Set(services.map(({ id }) => id));
  const byService = Map.groupBy(tasks, ({ serviceId }) => serviceId);
  return (service) => {
    if (!isJob(service.spec)) return false;
    const scheduleId = scheduleOf(service);
    if (scheduleId !== null && known.has(scheduleId)) return true;
    return isOver(progressOf(service, byService.get(service.id) ?? [], view));
  };
}

function isUsable({ spec, status }: Node): boolean {
  return status?.state === NodeStatus_State.READY && spec?.availability === NodeSpec_Availability.ACTIVE;
}

function isOverlay(driver: string | undefined): boolean {
  return driver === undefined || driver === "" || driver === "overlay";
}

function nodePlans(
  nodes: readonly Node[],
  labels: readonly ReadonlyMap<string, string>[],
  observed: ObservedTimes,
): readonly NodePlan[] {
  const taken = new Set<string>();
  const failures = observed.nodeFailures();
  const plans = nodes.map(({ id, spec, description }, at): NodePlan => {
    const name = uniqueName(description?.hostname ?? id, taken);
    const { nanoCpus = 0, memoryBytes = 0 } = description?.resources ?? {};
    return {
      name,
      labels: { ...spec?.annotations?.labels, ...Object.fromEntries(labels[at] ?? []) },
      nanoCpus: BigInt(nanoCpus || nodeDefaults.nanoCpus),
      memoryBytes: BigInt(memoryBytes || nodeDefaults.memoryBytes),
      failures,
    };
  });
  return plans.toSorted((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
}

/** Hostnames are neither unique nor checked. */
function uniqueName(hostname: string, taken: Set<string>): string {
  const tidy = hostname
    .replaceAll(/[^A-Za-z0-9._-]+/g, "-")
    .replaceAll(/^[^A-Za-z0-9]+|[^A-Za-z0-9]+$/g, "")
    .slice(0, 50);
  const base = namesOf(tidy).kind === "names" ? tidy : "node";
  let name = base;
  // Host names are the same in any case.
  for (let number = 2; taken.has(name.toLowerCase()); number += 1) name = `${base}-${number}`;
  taken.add(name.toLowerCase());
  return name;
}

/** The constraint itself, or one on a label that the nodes that meet it get. */
function onLabels(text: string, nodes: readonly Node[], labels: readonly Map<string, string>[]): string {
  const parsed = parseConstraint(text);
  if (parsed.kind === "invalid") return text;
  const { constraint } = parsed;
  if (constraint.subject.kind === "nodeLabel") return text;
  const words = text
    .replaceAll("==", "-is-")
    .replaceAll("!=", "-is-not-")
    .replaceAll(/[^A-Za-z0-9]+/g, "-");
  const label = `${labelPrefix}${words.replaceAll(/^-|-$/g, "")}`;
  for (const [at, node] of nodes.entries()) if (meetsConstraint(constraint, node)) labels[at]?.set(label, "true");
  return `node.labels.${label} == true`;
}

/**
 * Rehearsed nodes run tasks of any kind: if only some nodes have the driver or the engine for the service, they get a label, and
 * the constraint is on it.
 */
function onDriver(
  { id, spec }: Service,
  nodes: readonly Node[],
  labels: readonly Map<string, string>[],
): readonly string[] {
  const task = spec?.task ?? TaskSpec.create();
  const demand = demandOf(Task.create({ serviceId: id, spec: task }));
  const lists = new PluginLists();
  const can = nodes.map((node) => {
    const engine = node.description?.engine ?? null;
    return missingPlugin(demand, { node, plugins: engine === null ? null : lists.of(engine.plugins) }) === null;
  });
  if (can.every(Boolean)) return [];
  const label = `${labelPrefix}runs-${(task.generic?.kind ?? "containers").replaceAll(/[^A-Za-z0-9]+/g, "-")}`;
  for (const [at, isAble] of can.entries()) if (isAble) labels[at]?.set(label, "true");
  return [`node.labels.${label} == true`];
}

/** `networks`: names of those that are copied. */
function withPlacement(spec: ServiceSpec, constraints: readonly string[], networks: ReadonlySet<string>): ServiceSpec {
  const task = spec.task ?? TaskSpec.create({});
  return ServiceSpec.patch(spec, {
    task: TaskSpec.patch(task, {
      placement: Placement.patch(task.placement ?? Placement.create({}), { constraints }),
      networks: task.networks.filter(({ target }) => networks.has(target)),
    }),
  });
}
