/** The cluster state that `muster policy` reads. */
import type { ClusterFacts } from "../../machines/policy/calculate.ts";
import { evaluateHostEndpoint, type Direction, type Packet, type Verdict } from "../../machines/policy/evaluate.ts";
import { reportOf } from "../../machines/explain/dataplane.ts";
import { unknownPorts, type UnknownPort } from "../../machines/policy/named-ports.ts";
import type { NodeState } from "../../machines/policy/node-state.ts";
import { isPolicyKind, readPolicyObject, type PolicyObject } from "../../machines/policy/objects.ts";
import {
  ControlService,
  ListResourcesRequest,
  OperatorService,
  StatusRequest,
  type ManagerPlace,
  type Node,
  type Resource,
  type Service,
  type Task,
} from "../../proto/gen/messages.ts";
import { listNodes, listServices, listTasks, type ManagerClient } from "../manager-client.ts";
import type { DataplaneReports } from "./status.ts";

export interface PolicyCluster {
  readonly nodes: readonly Node[];
  readonly services: readonly Service[];
  readonly tasks: readonly Task[];
  /** Resources that are policy objects. */
  readonly resources: readonly Resource[];
  readonly managers: readonly ManagerPlace[];
  /** The dataplane reports of nodes, by node id. */
  readonly reports: DataplaneReports;
}

export async function readCluster(client: ManagerClient): Promise<PolicyCluster> {
  const { resources } = await client.call(ControlService.methods.ListResources, ListResourcesRequest.create({}));
  const { managers } = await client.call(OperatorService.methods.Status, StatusRequest.create({}));
  const reports = new Map(
    resources.flatMap((resource) => {
      const report = reportOf(resource);
      return report === null ? [] : [[resource.id, report] as const];
    }),
  );
  return {
    nodes: await listNodes(client),
    services: await listServices(client),
    tasks: await listTasks(client),
    resources: resources.filter(({ kind }) => isPolicyKind(kind)),
    managers,
    reports,
  };
}

export function objectsOf({ resources }: PolicyCluster): readonly PolicyObject[] {
  return resources.map(readPolicyObject).filter((each) => each !== null);
}

/** Named ports of its rules that no endpoint has. */
export function unknownPortsOf(of: PolicyObject, facts: ClusterFacts): readonly UnknownPort[] {
  if (of.kind === "NetworkPolicy") return unknownPorts(`policy ${of.object.name}`, of.object, facts);
  return of.kind === "NetworkProfile" ? unknownPorts(`profile ${of.object.name}`, of.object, facts) : [];
}

const stages = ["untracked", "pre-dnat", "normal"] as const;

/** The verdict of the first stage that refuses, else of the last stage. */
export function throughHost(state: NodeState, id: string, direction: Direction, packet: Packet): Verdict {
  const endpoint = state.hostEndpoints.get(id);
  let last: Verdict = { allowed: true, by: { kind: "nothing" } };
  if (endpoint === undefined) return last;
  for (const stage of stages) {
    const verdict = evaluateHostEndpoint(state, endpoint, direction, stage, packet);
    if (!verdict.allowed) return verdict;
    if (verdict.by.kind !== "nothing") last = verdict;
    // Untracked traffic that the first stage accepts skips the later stages.
    if (stage === "untracked" && verdict.by.kind !== "nothing") return verdict;
  }
  return last;
}
