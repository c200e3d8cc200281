/**
 * A service's endpoint: its published ports, and a virtual IP in each of its networks and, if it publishes ports through it,
 * in the ingress network.
 */
import {
  Endpoint,
  Endpoint_VirtualIP,
  EndpointSpec_ResolutionMode,
  type NetworkAttachmentConfig,
  type Service,
} from "../../proto/gen/messages.ts";
import { isSameMessage } from "../same-message.ts";
import type { Holders } from "./holders.ts";
import { takeBeside, type Networks } from "./networks.ts";
import { decidePorts, holdsPorts, isIngressPort, type PortSpace } from "./ports.ts";
import { blocked, causes, type Blocked } from "./waiting.ts";

export interface EndpointSpaces {
  readonly ports: PortSpace;
  readonly networks: Networks;
  readonly holders: Holders;
  /** Number of addresses of the network to leave for nodes. */
  readonly kept: (networkId: string) => number;
}

export type EndpointDecision =
  /** The stored endpoint is correct. */
  { readonly kind: "allocated" } | { readonly kind: "endpoint"; readonly endpoint: Endpoint } | Blocked;

const nothing: readonly never[] = Object.freeze([]);

/** The networks of the task spec, or those of the deprecated service field if the former are empty. */
export function networksOf(
  ofTask: readonly NetworkAttachmentConfig[],
  service: Service | undefined,
): readonly NetworkAttachmentConfig[] {
  return ofTask.length > 0 ? ofTask : (service?.spec?.networks ?? nothing);
}

export function needsIngress(service: Service): boolean {
  return (service.spec?.endpoint?.ports ?? nothing).some(isIngressPort);
}

export function isEmptyEndpoint(endpoint: Endpoint): boolean {
  return endpoint.ports.length === 0 && endpoint.virtualIps.length === 0;
}

/** Networks in which the service has a virtual IP: ids or names. */
function vipTargets(service: Service, networks: Networks): readonly string[] {
  const { spec } = service;
  if (spec?.endpoint?.mode === EndpointSpec_ResolutionMode.DNSRR) return nothing;
  const configs = networksOf(spec?.task?.networks ?? nothing, service);
  const isPublished = needsIngress(service);
  if (configs.length === 0 && !isPublished) return nothing;
  const targets = isPublished ? [networks.ingressTarget] : [];
  const ids = new Set(targets);
  for (const { target } of configs) {
    const id = networks.idOf(target);
    if (ids.has(id)) continue;
    ids.add(id);
    targets.push(target);
  }
  return targets;
}

export function isEndpointAllocated(service: Service, { ports, networks, holders }: EndpointSpaces): boolean {
  const spec = service.spec?.endpoint ?? null;
  const had = service.endpoint;
  const asked = spec?.ports ?? nothing;
  const targets = vipTargets(service, networks);
  if (asked.length === 0 && targets.length === 0 && (had === null || isEmptyEndpoint(had))) return true;
  if (had === null || had.ports.length !== asked.length || had.virtualIps.length !== targets.length) return false;
  if (!isSameMessage(had.spec, spec) || !holdsPorts(service.id, had.ports, ports)) return false;
  return targets.every((target) => {
    const id = networks.idOf(target);
    const vip = had.virtualIps.find(({ networkId }) => networkId === id);
    return vip !== undefined && holders.holds(service.id, id, vip.addr);
  });
}

/** The service's new endpoint. Allocates its resources, or nothing if it is blocked. */
export function decideEndpoint(service: Service, spaces: EndpointSpaces): EndpointDecision {
  if (isEndpointAllocated(service, spaces)) return { kind: "allocated" };
  const { holders, kept, networks, ports } = spaces;
  const decided = decidePorts(service, ports);
  if ("problem" in decided) return blocked(causes.ports, decided.problem);
  const had = service.endpoint?.virtualIps ?? nothing;
  const vips: Endpoint_VirtualIP[] = [];
  const taken: Endpoint_VirtualIP[] = [];
  const undo = (problem: Blocked): Blocked => {
    for (const { networkId, addr } of taken) networks.space(networkId)?.release(addr);
    return problem;
  };
  for (const target of vipTargets(service, networks)) {
    const found = networks.find(target);
    if ("kind" in found) return undo(found);
    const { id } = found.network;
    const old = had.find(({ networkId }) => networkId === id);
    if (old !== undefined && holders.holds(service.id, id, old.addr)) {
      vips.push(old);
      continue;
    }
    // Node-local networks are listed without an address.
    const addr = found.space === null ? "" : takeBeside(found, kept(id));
    if (typeof addr !== "string") return undo(addr);
    const vip = Endpoint_VirtualIP.create({ networkId: id, addr });
    vips.push(vip);
    taken.push(vip);
  }
  holders.noteService(service.id, vips);
  const spec = service.spec?.endpoint ?? null;
  return { kind: "endpoint", endpoint: Endpoint.create({ spec, ports: decided.ports, virtualIps: vips }) };
}
