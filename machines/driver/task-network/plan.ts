/**
 * The network of one task on an agent: a namespace, and for each network that the task is attached to a pair of interfaces, the
 * host's end of which is named as the policy compiler names the endpoint. Decided from the stored task alone.
 *
 * TN1: a task has the allocator's addresses, each whole by itself (/32, /128): all that it sends goes by the node, so policy
 *      sees it, neighbours on the same node included.
 * TN2: what cannot be made as it was asked for is refused with a sentence, never made in part.
 */
import {
  PortConfig_Protocol,
  PortConfig_PublishMode,
  type NetworkAttachment,
  type Task,
} from "../../../proto/gen/messages.ts";
import { containsAddress, parseAddress, parseCidr } from "../../../runtime/ip-address.ts";
import { macOf } from "../../mac-address.ts";
import { isEncrypted } from "../../networks/network-facts.ts";
import { interfaceOf } from "../../policy/facts.ts";

export interface LinkAddress {
  readonly family: 4 | 6;
  /** Without a prefix length. */
  readonly address: string;
  /** That the address was given from. */
  readonly subnet: string;
  readonly gateway: string;
}

/** One network of a task. */
export interface LinkPlan {
  /** The network's name, for people. */
  readonly network: string;
  /** Of the node's end, and of the task's. */
  readonly hostInterface: string;
  readonly taskInterface: string;
  readonly taskMac: string;
  /** Nothing leads out of such a network. */
  readonly isInternal: boolean;
  readonly addresses: readonly LinkAddress[];
}

/** A port of the node that leads to the task. */
export interface NodePort {
  readonly name: string;
  readonly protocol: "tcp" | "udp" | "sctp";
  readonly nodePort: number;
  readonly taskPort: number;
}

/** Plain JSON: it is kept on the node's disk. */
export interface NetworkPlan {
  readonly taskId: string;
  readonly links: readonly LinkPlan[];
  readonly ports: readonly NodePort[];
}

export type NetworkDecision =
  /** The task is in the node's own network. */
  | { readonly kind: "none" }
  | { readonly kind: "plan"; readonly plan: NetworkPlan }
  | { readonly kind: "refused"; readonly reason: string };

const protocols: { readonly [Protocol in PortConfig_Protocol]: NodePort["protocol"] } = {
  [PortConfig_Protocol.TCP]: "tcp",
  [PortConfig_Protocol.UDP]: "udp",
  [PortConfig_Protocol.SCTP]: "sctp",
};

export function networkOf(task: Task): NetworkDecision {
  if (task.networks.length === 0) return { kind: "none" };
  const links: LinkPlan[] = [];
  for (const attachment of task.networks) {
    const link = linkOf(task.id, attachment, links.length);
    if (typeof link === "string") return { kind: "refused", reason: link };
    links.push(link);
  }
  const ports: NodePort[] = [];
  const isContainer = task.spec?.container != null;
  for (const port of task.endpoint?.ports ?? []) {
    if (port.publishMode !== PortConfig_PublishMode.HOST) continue;
    const { name, protocol, publishedPort: nodePort, targetPort: taskPort } = port;
    // A process's is there for policies to name. Of a container's, Compose files and engines mean more by it.
    if (nodePort === 0 && name !== "" && !isContainer) continue;
    // Engines would choose one themselves, and tell; nothing here could tell clients which.
    if (nodePort === 0)
      return { kind: "refused", reason: `its port ${taskPort} is published and names no port of the node` };
    ports.push({ name, protocol: protocols[protocol] ?? "tcp", nodePort, taskPort });
  }
  return { kind: "plan", plan: { taskId: task.id, links, ports } };
}

/** A link, or why there is none. TN2 */
function linkOf(taskId: string, { addresses, network }: NetworkAttachment, at: number): LinkPlan | string {
  const name = network?.spec?.annotations?.name || (network?.id ?? "");
  if (network === null || addresses.length === 0)
    return `network ${name} has no address for it: agents attach tasks to networks that the cluster allocates`;
  if (isEncrypted(network.spec))
    return `network ${name} is encrypted, and agents send what is in networks from node to node as it is`;
  if (network.spec?.ingress === true)
    return "its ports are published by the routing mesh, which agents do not have: publish them with mode=host";
  const given: LinkAddress[] = [];
  for (const text of addresses) {
    const address = text.split("/")[0] as string;
    const parsed = parseAddress(address);
    const config = (network.ipam?.configs ?? []).find(({ subnet }) => {
      const prefix = parseCidr(subnet);
      return parsed !== null && prefix !== null && prefix.family === parsed.family && containsAddress(prefix, parsed);
    });
    const gateway = config?.gateway.split("/")[0] ?? "";
    if (parsed === null || config === undefined || parseAddress(gateway) === null)
      return `its address ${text} in network ${name} is in none of the network's subnets`;
    given.push({ family: parsed.family, address, subnet: config.subnet, gateway });
  }
  return {
    network: name,
    hostInterface: interfaceOf(taskId, network.id),
    taskInterface: `eth${at}`,
    taskMac: macOf(`${taskId}/${network.id}`),
    isInternal: network.spec?.internal ?? false,
    addresses: given,
  };
}

export function namespaceOf(tag: string, taskId: string): string {
  return `${namespacePrefix(tag)}${taskId}`;
}

/** First letters of the names of one agent's namespaces. `tag`: the agent's own (`[0-9a-f]+`). */
export function namespacePrefix(tag: string): string {
  return `mst-${tag}-`;
}
