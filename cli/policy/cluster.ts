/** What `muster policy` reads of the cluster, and whether a change of policies would cut a manager off. */
import { calculateNode, clusterFacts, type ClusterFacts } from "../../machines/policy/calculate.ts";
import { evaluateHostEndpoint, type Direction, type Packet, type Verdict } from "../../machines/policy/evaluate.ts";
import type { NodeState } from "../../machines/policy/node-state.ts";
import { isPolicyKind, readPolicyObject, reportKind, type PolicyObject } from "../../machines/policy/objects.ts";
import {
  ControlService,
  DataplaneConfig,
  DataplaneReport,
  ListResourcesRequest,
  type Node,
  type Resource,
  type Service,
  type Task,
} from "../../proto/gen/messages.ts";
import { listNodes, listServices, listTasks, nodeName, type ManagerClient } from "../manager-client.ts";
import { parseAddress } from "../../machines/ip-address.ts";

export interface PolicyCluster {
  readonly nodes: readonly Node[];
  readonly services: readonly Service[];
  readonly tasks: readonly Task[];
  /** Those that hold policy objects. */
  readonly resources: readonly Resource[];
  /** What nodes say of their dataplanes, by node. */
  readonly reports: ReadonlyMap<string, DataplaneReport>;
}

export async function readCluster(client: ManagerClient): Promise<PolicyCluster> {
  const { resources } = await client.call(ControlService.methods.ListResources, ListResourcesRequest.create({}));
  const reports = new Map<string, DataplaneReport>();
  for (const { id, kind, payload } of resources)
    if (kind === reportKind && payload !== null) reports.set(id, DataplaneReport.decode(payload.value));
  return {
    nodes: await listNodes(client),
    services: await listServices(client),
    tasks: await listTasks(client),
    resources: resources.filter(({ kind }) => isPolicyKind(kind)),
    reports,
  };
}

export function objectsOf({ resources }: PolicyCluster): readonly PolicyObject[] {
  return resources.map(readPolicyObject).filter((each) => each !== null);
}

export function factsOf(cluster: PolicyCluster): ClusterFacts {
  return clusterFacts(cluster);
}

const stages = ["untracked", "pre-dnat", "normal"] as const;

/** The first stage that refuses, or else what the last one says. */
export function throughHost(state: NodeState, id: string, direction: Direction, packet: Packet): Verdict {
  const endpoint = state.hostEndpoints.get(id);
  let last: Verdict = { allowed: true, by: { kind: "nothing" } };
  if (endpoint === undefined) return last;
  for (const stage of stages) {
    const verdict = evaluateHostEndpoint(state, endpoint, direction, stage, packet);
    if (!verdict.allowed) return verdict;
    if (verdict.by.kind !== "nothing") last = verdict;
    // What the first stage accepts is not tracked, and the later ones are not asked.
    if (stage === "untracked" && verdict.by.kind !== "nothing") return verdict;
  }
  return last;
}

/** Of a manager that has none to tell: an address out of everybody's way (RFC 5737). */
const somebody = "192.0.2.1";

/**
 * Why nodes could not reach a manager any more, were it not for the failsafe ports; null when they could. Looks at every
 * host endpoint of a manager, and for what leaves at those of every node.
 */
export function cutsOff({ nodes }: PolicyCluster, facts: ClusterFacts): string | null {
  for (const manager of nodes) {
    const [address = "", port = ""] = splitAddress(manager.managerStatus?.addr ?? "");
    if (parseAddress(address) === null) continue;
    for (const node of nodes) {
      const from = parseAddress(node.status?.addr ?? "") === null ? somebody : (node.status?.addr ?? somebody);
      const packet: Packet = {
        source: from,
        destination: address,
        protocol: "tcp",
        sourcePort: 40_000,
        destinationPort: Number(port),
      };
      if (parseAddress(from)?.family !== parseAddress(address)?.family) continue;
      const isItself = node.id === manager.id;
      const sides: readonly (readonly [Node, Direction])[] = isItself
        ? [[manager, "ingress"]]
        : [
            [node, "egress"],
            [manager, "ingress"],
          ];
      for (const [at, direction] of sides) {
        const state = calculateNode(facts, at.id);
        state.config = DataplaneConfig.create({});
        for (const id of state.hostEndpoints.keys())
          if (!throughHost(state, id, direction, packet).allowed)
            return `${nodeName(node) || node.id} could not reach the manager ${nodeName(manager)} at ${address}:${port}: host endpoint ${id} of ${nodeName(at)} refuses it`;
      }
    }
  }
  return null;
}

function splitAddress(address: string): readonly string[] {
  const at = address.lastIndexOf(":");
  return at < 0 ? [] : [address.slice(0, at).replaceAll(/[[\]]/g, ""), address.slice(at + 1)];
}
