/**
 * The network of one task on an agent: a namespace, and a veth pair for each attached network, whose end on the node has the
 * name that the policy compiler gives the endpoint. Computed from the stored task alone.
 *
 * TN1: a task has the allocator's addresses as single hosts (/32, /128): all its traffic passes through the node, so policy
 *      applies to it, even between tasks on the same node.
 * TN2: a network that cannot be created as requested is refused with a message, never created in part.
 */
import {
  PortConfig_Protocol,
  PortConfig_PublishMode,
  type NetworkAttachment,
  type Task,
} from "../../../proto/gen/messages.ts";
import { containsAddress, parseAddress, parseCidr } from "../../../lib/ip-address.ts";
import { macOf } from "../../mac-address.ts";
import { isEncrypted } from "../../networks/facts.ts";
import { interfaceOf } from "../../policy/facts.ts";

interface LinkAddress {
  readonly family: 4 | 6;
  /** Without a prefix length. */
  readonly address: string;
  /** The subnet of the address. */
  readonly subnet: string;
  readonly gateway: string;
}

/** One network of a task. */
export interface LinkPlan {
  /** The network's name, for messages. */
  readonly network: string;
  /** Names of the node's end and the task's end. */
  readonly hostInterface: string;
  readonly taskInterface: string;
  readonly taskMac: string;
  /** An internal network: no traffic leaves it. */
  readonly isInternal: boolean;
  readonly addresses: readonly LinkAddress[];
}

/** A port of the node that is forwarded to the task. */
interface NodePort {
  readonly name: string;
  readonly protocol: "tcp" | "udp" | "sctp";
  readonly nodePort: number;
  readonly taskPort: number;
}

/** Plain JSON: stored on the node's disk. */
export interface NetworkPlan {
  readonly taskId: string;
  readonly links: readonly LinkPlan[];
  readonly ports: readonly NodePort[];
}

export type NetworkDecision =
  /** The task uses the node's own network. */
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
    // For a process, such a port exists only so that policies can name it. For a container, Compose files and engines expect
    // it to be published.
    if (nodePort === 0 && name !== "" && !isContainer) continue;
    // Engines would choose a port and report it; agents cannot report it to clients.
    if (nodePort === 0)
      return {
        kind: "refused",
        reason: `published port ${taskPort} needs a fixed port on the node: set the published port`,
      };
    ports.push({ name, protocol: protocols[protocol] ?? "tcp", nodePort, taskPort });
  }
  return { kind: "plan", plan: { taskId: task.id, links, ports } };
}

/** A link, or why it cannot be created. TN2 */
function linkOf(taskId: string, { addresses, network }: NetworkAttachment, at: number): LinkPlan | string {
  const name = network?.spec?.annotations?.name || (network?.id ?? "");
  if (network === null || addresses.length === 0)
    return `network ${name} has no address for the task: agents support only networks that the cluster allocates`;
  if (isEncrypted(network.spec)) return `network ${name} is encrypted, which agents do not support`;
  if (network.spec?.ingress === true) return "agents do not support the routing mesh: publish ports with mode=host";
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
      return `address ${text} is in none of the subnets of network ${name}`;
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

/** Prefix of the names of one agent's namespaces. `tag`: the agent's (`[0-9a-f]+`). */
export function namespacePrefix(tag: string): string {
  return `mst-${tag}-`;
}
