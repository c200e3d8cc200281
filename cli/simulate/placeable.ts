/** Services that could run on no node of a rehearsal, not even on one that joins. */
import { constraintsOf, meetsConstraint } from "../../machines/scheduling/constraints.ts";
import { Annotations, Node, NodeDescription, NodeRole, NodeSpec, Platform } from "../../proto/gen/messages.ts";
import type { ServiceSpec } from "../../proto/gen/messages.ts";
import type { NodePlan } from "../../simulation/rehearsal/plan.ts";
import { bytesText } from "./plain-values.ts";

interface Unplaceable {
  /** Keys of the service that say so, outermost first. */
  readonly keys: readonly string[];
  readonly problem: string;
}

/** Null: a node can run it, or no node need to because it is global. */
export function unplaceable(spec: ServiceSpec, nodes: readonly NodePlan[]): Unplaceable | null {
  if (spec.global !== null || spec.globalJob !== null) return null;
  if (nodes.length === 0) return { keys: [], problem: "can run nowhere: the cluster has no nodes" };
  const constraints = constraintsOf(spec.task?.placement ?? null);
  const keys = ["deploy", "placement", "constraints"];
  const all = nodes.map((plan) => ({ plan, node: asNode(plan) }));
  for (const constraint of constraints)
    if (!all.some(({ node }) => meetsConstraint(constraint, node)))
      return { keys, problem: `'${constraint.text.trim()}' holds on no node of the cluster, and on none that joins` };
  const allowed = all.filter(({ node }) => constraints.every((each) => meetsConstraint(each, node)));
  if (allowed.length === 0) return { keys, problem: "hold together on no node of the cluster, and on none that joins" };
  const { nanoCpus = 0, memoryBytes = 0 } = spec.task?.resources?.reservations ?? {};
  const fits = ({ plan }: (typeof all)[number]): boolean =>
    BigInt(nanoCpus) <= plan.nanoCpus && BigInt(memoryBytes) <= plan.memoryBytes;
  if (allowed.some(fits)) return null;
  const most = (pick: (plan: NodePlan) => bigint): number =>
    Number(allowed.reduce((best, { plan }) => (pick(plan) > best ? pick(plan) : best), 0n));
  const [cpus, memory] = [most((plan) => plan.nanoCpus), most((plan) => plan.memoryBytes)];
  const lacks = [
    ...(nanoCpus > cpus ? [`${nanoCpus / 1e9} CPUs (the most are ${cpus / 1e9})`] : []),
    ...(memoryBytes > memory ? [`${bytesText(memoryBytes)} of memory (the most are ${bytesText(memory)})`] : []),
  ];
  const what = lacks.length === 0 ? "the reserved CPUs and memory together" : lacks.join(" and ");
  return { keys: ["deploy", "resources", "reservations"], problem: `no node on which it may run has ${what}` };
}

/** As managers see it. */
function asNode({ labels, name }: NodePlan): Node {
  return Node.create({
    role: NodeRole.WORKER,
    spec: NodeSpec.create({ annotations: Annotations.create({ labels }) }),
    description: NodeDescription.create({
      hostname: name,
      platform: Platform.create({ architecture: "x86_64", os: "linux" }),
    }),
  });
}
