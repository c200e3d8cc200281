/**
 * How a node reaches the tasks of other nodes that are in its tasks' networks: one VXLAN device, and for each such task a route
 * by way of its node's end of the tunnel. Decided from what the node was told alone.
 *
 * TU1: there is a route to each task of a network that a task of this node is in, if that task's node has a tunnel and is another
 *      machine; and no other route.
 * TU2: nothing of a tunnel is allotted: the hardware address of an end follows from its address in the network between the nodes,
 *      and that address is the next hop itself.
 * TU3: every pair of an inner and an outer address that may arrive is listed: who is at one node cannot speak for who is at another.
 */
import type { NetworksState } from "./networks-state.ts";
import { addressAt, parseAddress, type Address } from "../../runtime/ip-address.ts";
import { macOf } from "../mac-address.ts";

/**
 * Of the packets between nodes. The allocator never gives 0, and nobody can ask for it: whatever network has tasks of engines on
 * the same machine has another id.
 */
export const tunnelId = 0;

/** What a packet has more between nodes, in bytes: RFC 7348 §5 with an outer IPv6 header, the longer one. */
export const tunnelOverhead = 70;

/** One end of the tunnel, as the kernel is to have it. */
export interface TunnelDevice {
  readonly local: string;
  readonly port: number;
  readonly mac: string;
}

/** The tunnel's end at another machine. */
export interface TunnelPeer {
  readonly address: string;
  readonly mac: string;
  /** The next hop of what is sent there, by the family of what is sent. */
  readonly via: { readonly 4: string; readonly 6: string };
}

/** Who is reached by way of whom; addresses in the one form that the kernel shows them in. */
export interface TunnelRoutes {
  /** By address. */
  readonly peers: ReadonlyMap<string, TunnelPeer>;
  /** Address of each task, and of the peer that it is at. */
  readonly routes: ReadonlyMap<string, string>;
}

export interface TunnelPlan extends TunnelRoutes {
  readonly device: TunnelDevice;
  /** Within each of which tasks may talk to one another. */
  readonly subnets: readonly string[];
}

export type TunnelDecision =
  /** Nobody is anywhere else. */
  | { readonly kind: "none" }
  | { readonly kind: "plan"; readonly plan: TunnelPlan }
  /** There are tasks elsewhere, and no way to them. */
  | { readonly kind: "impossible"; readonly reason: string };

export function tunnelOf({ networks, nodes, tasks }: NetworksState, ownNodeId: string): TunnelDecision {
  const own = nodes.get(ownNodeId);
  if (own === undefined) return { kind: "none" };
  const local = usable(own.address);
  const peers = new Map<string, TunnelPeer>();
  const routes = new Map<string, string>();
  /** By node; null: not by way of the tunnel. */
  const ends = new Map<string, TunnelPeer | null>([[ownNodeId, null]]);
  let isMissed = false;
  for (const { addresses, nodeId } of tasks.values()) {
    let end = ends.get(nodeId);
    if (end === undefined) {
      const node = nodes.get(nodeId);
      // Another agent of this machine has links to its tasks here.
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
      reason: `other nodes cannot reach this one, ${what}: say another with --data-path-addr`,
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

/** Null for what no other machine can have packets sent to. */
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

/** As the kernel shows it; what is no address stays as it is. */
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

/** The peer of a next hop; null for one that is no peer's. */
export function peerOfHop(hop: string): TunnelPeer | null {
  const parsed = parseAddress(hop);
  if (parsed === null) return null;
  const { family, value } = parsed;
  return family === 6 && value >> 64n === linkLocal
    ? peerAt({ family: 4, value: value & 0xffffffffn })
    : peerAt(parsed);
}
