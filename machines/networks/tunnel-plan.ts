/**
 * How a node reaches tasks on other nodes that are in its tasks' networks: one VXLAN device, and for each such task a route
 * through its node's end of the tunnel. Computed only from what the node was sent.
 *
 * TU1: there is a route to each task in a network of this node's tasks whose node has a tunnel and is another machine; and no
 *      other route.
 * TU2: nothing of a tunnel is allocated: the hardware address of an end is derived from its address in the network between
 *      the nodes, and that address itself is the next hop.
 * TU3: every allowed pair of an inner and an outer source address is listed: a host at one node cannot impersonate one at
 *      another.
 */
import type { NetworksState } from "./state.ts";
import { addressAt, parseAddress, type Address } from "../../lib/ip-address.ts";
import { macOf } from "../mac-address.ts";

/**
 * The VXLAN id of packets between nodes. The allocator never assigns 0, and it cannot be requested: any network of engines on
 * the same machine has another id.
 */
export const tunnelId = 0;

/** Overhead of packets between nodes, in bytes: RFC 7348 §5 with the longer outer header, IPv6. */
export const tunnelOverhead = 70;

/** One end of the tunnel, as wanted in the kernel. */
export interface TunnelDevice {
  readonly local: string;
  readonly port: number;
  readonly mac: string;
}

/** The tunnel's end on another machine. */
export interface TunnelPeer {
  readonly address: string;
  readonly mac: string;
  /** The next hop, by the family of the inner packet. */
  readonly via: { readonly 4: string; readonly 6: string };
}

/** Which task is behind which peer; addresses in the kernel's canonical form. */
export interface TunnelRoutes {
  /** By address. */
  readonly peers: ReadonlyMap<string, TunnelPeer>;
  /** By address of a task: the address of its peer. */
  readonly routes: ReadonlyMap<string, string>;
}

export interface TunnelPlan extends TunnelRoutes {
  readonly device: TunnelDevice;
  /** Tasks may communicate within each of these. */
  readonly subnets: readonly string[];
}

type TunnelDecision =
  /** No task is on another node. */
  | { readonly kind: "none" }
  | { readonly kind: "plan"; readonly plan: TunnelPlan }
  /** There are tasks on other nodes, but no way to reach them. */
  | { readonly kind: "impossible"; readonly reason: string };

export function tunnelOf({ networks, nodes, tasks }: NetworksState, ownNodeId: string): TunnelDecision {
  const own = nodes.get(ownNodeId);
  if (own === undefined) return { kind: "none" };
  const local = usable(own.address);
  const peers = new Map<string, TunnelPeer>();
  const routes = new Map<string, string>();
  /** By node; null: not reached through the tunnel. */
  const ends = new Map<string, TunnelPeer | null>([[ownNodeId, null]]);
  let isMissed = false;
  for (const { addresses, nodeId } of tasks.values()) {
    let end = ends.get(nodeId);
    if (end === undefined) {
      const node = nodes.get(nodeId);
      // Another agent on this machine has links to its own tasks.
      const remote = node?.hasTunnel === true && node.address !== own.address ? usable(node.address) : null;
      if (remote !== null && local === null) isMissed = true;
      end = remote === null || remote.family !== local?.family ? null : peerAt(remote);
      ends.set(nodeId, end);
    }
    if (end === null) continue;
    peers.set(end.address, end);
    for (const address of addresses) routes.set(canonical(address), end.address);
  }
  if (isMissed) {
    const what = own.address === "" ? "its address is not known" : `its address is ${own.address}`;
    return {
      kind: "impossible",
      reason: `other nodes cannot reach this one, ${what}: set another address with --data-path-addr`,
    };
  }
  if (routes.size === 0) return { kind: "none" };
  return {
    kind: "plan",
    plan: {
      device: { local: canonical(own.address), port: own.port, mac: peerAt(local as Address).mac },
      peers,
      routes,
      subnets: [...networks.values()].flatMap((network) => network.subnets.map(({ subnet }) => subnet)).toSorted(),
    },
  };
}

/** Null if another machine cannot send packets to the address. */
function usable(address: string): Address | null {
  const parsed = parseAddress(address);
  if (parsed === null) return null;
  const isOwn =
    parsed.family === 4 ? parsed.value >> 24n === 127n : parsed.value === 1n || parsed.value >> 64n === linkLocal;
  return isOwn || parsed.value === 0n ? null : parsed;
}

/** fe80::/64 */
const linkLocal = 0xfe80n << 48n;

function textOf(family: 4 | 6, value: bigint): string {
  return addressAt({ family, value, length: 0 }, 0);
}

/** The kernel's form of the address; other text is returned unchanged. */
export function canonical(address: string): string {
  const parsed = parseAddress(address);
  return parsed === null ? address : textOf(parsed.family, parsed.value);
}

/** TU2 */
function peerAt({ family, value }: Address): TunnelPeer {
  const address = textOf(family, value);
  const six = family === 6 ? address : textOf(6, (linkLocal << 64n) | value);
  return { address, mac: macOf(`tunnel ${address}`), via: { 4: address, 6: six } };
}

/** The peer of a next hop; null if the next hop is not a peer's. */
export function peerOfHop(hop: string): TunnelPeer | null {
  const parsed = parseAddress(hop);
  if (parsed === null) return null;
  const { family, value } = parsed;
  return family === 6 && value >> 64n === linkLocal
    ? peerAt({ family: 4, value: value & 0xffffffffn })
    : peerAt(parsed);
}
