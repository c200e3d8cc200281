/** Warnings about requirements that no current node satisfies; the service is accepted, since a matching node may join. */
import { parseConstraint } from "../../machines/scheduling/constraints.ts";
import { isManagersNode } from "../../machines/manager/role.ts";
import { NodeRole, type Node, type ServiceSpec } from "../../proto/gen/messages.ts";
import { listNodes, type ManagerClient } from "../manager-client.ts";

/** Task drivers of the nodes, by name. */
function driversOf(nodes: readonly Node[]): readonly string[] {
  const names = nodes.flatMap(({ description }) =>
    (description?.engine?.plugins ?? []).filter(({ type }) => type === "Driver").map(({ name }) => name),
  );
  return [...new Set(names)].toSorted();
}

function driverWarning(spec: ServiceSpec, nodes: readonly Node[]): string | null {
  const kind = spec.task?.generic?.kind ?? "";
  const drivers = driversOf(nodes);
  // Engines do not list a driver for their own plugins.
  if (kind === "" || kind === "plugin" || drivers.includes(kind)) return null;
  const there = drivers.length === 0 ? "no node has any driver" : `nodes have ${drivers.join(", ")}`;
  return `no node has the driver ${kind} (${there}): tasks stay pending until one does`;
}

function asksForManagers(text: string): boolean {
  const parsed = parseConstraint(text);
  if (parsed.kind !== "constraint" || parsed.constraint.subject.kind !== "role") return false;
  return parsed.constraint.isEqual === (parsed.constraint.value === "manager");
}

/** Only for Muster's managers: stock managers run tasks, too. */
function managerWarning(spec: ServiceSpec, nodes: readonly Node[]): string | null {
  const constraint = spec.task?.placement?.constraints.find(asksForManagers);
  if (constraint === undefined || nodes.some((node) => node.role === NodeRole.MANAGER && !isManagersNode(node)))
    return null;
  return (
    `constraint ${constraint}: Muster's managers run no tasks, so tasks stay pending. Label a worker instead ` +
    "('muster node update --label-add KEY=VALUE NODE') and use the constraint node.labels.KEY==VALUE"
  );
}

/** One line each. */
export async function serviceWarnings(
  client: ManagerClient,
  specs: readonly ServiceSpec[],
): Promise<readonly string[]> {
  const mayWarn = specs.some(({ task }) => task?.generic != null || (task?.placement?.constraints.length ?? 0) > 0);
  if (!mayWarn) return [];
  const nodes = await listNodes(client);
  return specs.flatMap((spec) => {
    const name = spec.annotations?.name ?? "";
    const found = [driverWarning(spec, nodes), managerWarning(spec, nodes)].filter((text) => text !== null);
    return found.map((text) => `service ${name}: ${text}`);
  });
}
