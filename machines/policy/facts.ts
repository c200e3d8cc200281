/**
 * The facts that the calculation derives from the cluster's objects: endpoints with addresses and labels, hosts, and the
 * addresses of services.
 *
 * Labels of an endpoint: those of its service, overridden by those of its container, overridden by the cluster's own, which
 * users cannot forge: `service`, `service.id`, `stack`, `task.id`, `slot`, `network.NAME` (empty value), `node`, `node.id`,
 * `node.role`, `node.labels.K` and `engine.labels.K`.
 */
import { isHeld, observedState } from "../task.ts";
import {
  DataplaneHost,
  NodeRole,
  PortConfig_Protocol,
  type HostEndpoint,
  type NetworkAttachment,
  type Node,
  type PortConfig,
  type Service,
  type Task,
} from "../../proto/gen/messages.ts";
import { parseAddress } from "../../lib/ip-address.ts";
import { shortDigest } from "./digest.ts";
import type { Labels } from "./selector.ts";

interface PortFact {
  readonly name: string;
  readonly protocol: string;
  readonly port: number;
}

/** Anything that selectors can choose. */
export interface Chosen {
  readonly labels: Labels;
  /** Without prefix lengths. */
  readonly addresses: readonly string[];
  readonly ports: readonly PortFact[];
}

/** One interface of one task, or of a node. */
export interface EndpointFact extends Chosen {
  readonly id: string;
  readonly nodeId: string;
  /** Empty for a host endpoint. */
  readonly taskId: string;
  readonly interface: string;
  /** In order; null: the service names none. */
  readonly profiles: readonly string[] | null;
  readonly isHost: boolean;
}

/** Service label with a comma-separated list of profiles. */
const profilesLabel = "muster.network.profiles";

/** Name prefix of the host's side of every interface that the agent creates. */
export const interfacePrefix = "mst";

const stackLabel = "com.docker.stack.namespace";

const protocolNames: { readonly [Protocol in PortConfig_Protocol]: string } = {
  [PortConfig_Protocol.TCP]: "tcp",
  [PortConfig_Protocol.UDP]: "udp",
  [PortConfig_Protocol.SCTP]: "sctp",
};

/** Interface names have at most 15 characters; 60 bits are enough to distinguish a node's tasks. */
export function interfaceOf(taskId: string, networkId: string): string {
  return interfacePrefix + shortDigest(`${taskId}/${networkId}`).slice(0, 12);
}

/** Whether the task's addresses may be in use: it is on a node, and has not been observed to end. */
export function hasEndpoints(task: Task): boolean {
  return task.nodeId !== "" && task.networks.length > 0 && isHeld(observedState(task));
}

function plainAddresses({ addresses }: NetworkAttachment): string[] {
  return addresses.map((each) => each.split("/")[0] as string).filter((each) => parseAddress(each) !== null);
}

function portFacts(ports: readonly PortConfig[]): PortFact[] {
  return ports.map(({ name, protocol, targetPort }) => ({
    name,
    protocol: protocolNames[protocol] ?? "tcp",
    port: targetPort,
  }));
}

function prefixed(prefix: string, labels: Labels): Labels {
  return Object.fromEntries(Object.entries(labels).map(([key, value]) => [prefix + key, value]));
}

function nodeLabels(node: Node | undefined, nodeId: string): Labels {
  return {
    ...prefixed("node.labels.", node?.spec?.annotations?.labels ?? {}),
    ...prefixed("engine.labels.", node?.description?.engine?.labels ?? {}),
    node: node?.description?.hostname ?? "",
    "node.id": nodeId,
    "node.role": node?.role === NodeRole.MANAGER ? "manager" : "worker",
  };
}

function serviceLabels(labels: Labels, name: string, id: string): Labels {
  const stack = labels[stackLabel];
  return { ...labels, service: name, "service.id": id, ...(stack === undefined ? {} : { stack }) };
}

/** One for each network on which the task has an address. */
export function taskEndpoints(task: Task, service: Service | undefined, node: Node | undefined): EndpointFact[] {
  if (!hasEndpoints(task)) return [];
  const annotations = service?.spec?.annotations ?? task.serviceAnnotations;
  const own = annotations?.labels ?? {};
  const labels: Labels = {
    ...own,
    ...task.spec?.container?.labels,
    ...serviceLabels(own, annotations?.name ?? "", task.serviceId),
    ...nodeLabels(node, task.nodeId),
    "task.id": task.id,
    slot: String(task.slot),
  };
  const ports = portFacts(service?.spec?.endpoint?.ports ?? task.endpoint?.spec?.ports ?? []);
  const named = own[profilesLabel];
  const profiles =
    named === undefined
      ? null
      : named
          .split(",")
          .map((each) => each.trim())
          .filter((each) => each !== "");
  const endpoints: EndpointFact[] = [];
  for (const attachment of task.networks) {
    const network = attachment.network;
    const addresses = plainAddresses(attachment);
    if (network === null || addresses.length === 0) continue;
    endpoints.push({
      id: `${task.id}/${network.id}`,
      nodeId: task.nodeId,
      taskId: task.id,
      interface: interfaceOf(task.id, network.id),
      profiles,
      isHost: false,
      labels: { ...labels, [`network.${network.spec?.annotations?.name ?? network.id}`]: "" },
      addresses,
      ports,
    });
  }
  return endpoints;
}

/** Null while the node does not exist. */
export function hostEndpointFact(endpoint: HostEndpoint, node: Node | undefined): EndpointFact | null {
  if (node === undefined) return null;
  return {
    id: endpoint.name,
    nodeId: node.id,
    taskId: "",
    interface: endpoint.interface,
    profiles: endpoint.profiles,
    isHost: true,
    labels: { ...endpoint.labels, ...nodeLabels(node, node.id) },
    addresses: endpoint.expectedAddresses,
    ports: [],
  };
}

/** An endpoint as one of its service's addresses. */
export function servedAt(service: Service, endpoint: EndpointFact): Chosen {
  return { ...serviceFact(service), addresses: endpoint.addresses };
}

/** A service's own addresses, for rules that name services. */
export function serviceFact(service: Service): Chosen {
  const annotations = service.spec?.annotations;
  return {
    labels: serviceLabels(annotations?.labels ?? {}, annotations?.name ?? "", service.id),
    addresses: (service.endpoint?.virtualIps ?? [])
      .map(({ addr }) => addr.split("/")[0] as string)
      .filter((each) => parseAddress(each) !== null),
    ports: portFacts(service.spec?.endpoint?.ports ?? []),
  };
}

/** Null for a node without a name or an address. */
export function hostFact(node: Node): DataplaneHost | null {
  const hostname = node.description?.hostname ?? "";
  const address = parseAddress(node.status?.addr ?? "");
  if (hostname === "" || address === null) return null;
  return DataplaneHost.create({
    hostname,
    ipv4Address: address.family === 4 ? (node.status?.addr ?? "") : "",
    ipv6Address: address.family === 6 ? (node.status?.addr ?? "") : "",
  });
}
