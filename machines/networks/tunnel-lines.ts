/**
 * From what the kernel has of the tunnel to what it is to have: lines for `ip -batch` and `bridge -batch`.
 *
 * TU4: a peer's forwarding entry is there before all else of it, and goes last: wherever it is broken off, what is left is found
 *      again by these entries and by the routes.
 */
import { peerOfHop, tunnelId, type TunnelDevice, type TunnelPeer, type TunnelRoutes } from "./tunnel-plan.ts";

/** What the kernel has of a tunnel. */
export interface FoundTunnel extends TunnelDevice {
  readonly mtu: number;
  /** Next hop by destination, both without prefix lengths. */
  readonly hops: ReadonlyMap<string, string>;
  /** Addresses of the peers that there are forwarding entries for. */
  readonly ends: readonly string[];
}

/** To be run in this order. */
export interface TunnelLines {
  /** Of `bridge`: at which address between the nodes a hardware address is. */
  readonly meet: readonly string[];
  /** Of `ip`. */
  readonly route: readonly string[];
  /** Of `ip` and of `bridge`: each line may fail, since it may be gone. */
  readonly unroute: readonly string[];
  readonly part: readonly string[];
}

/** `tag`: the agent's own. Policy knows the ends of tasks' links by their names: it is none of those. */
export function tunnelDevice(tag: string): string {
  return `vxm${tag}`;
}

export function isSameDevice(found: FoundTunnel, { local, mac, port }: TunnelDevice, mtu: number): boolean {
  return found.local === local && found.mac === mac && found.port === port && found.mtu === mtu;
}

export function makeDevice(name: string, { local, mac, port }: TunnelDevice, mtu: number): readonly string[] {
  // Nothing is learned from what arrives: where each task is, is told.
  const kind = `type vxlan id ${tunnelId} local ${local} dstport ${port} nolearning`;
  return [
    `link add ${name} mtu ${mtu} address ${mac} ${kind}`,
    // No address of its own: nothing at a node is reached by way of the tunnel.
    `link set ${name} addrgenmode none`,
    `link set ${name} up`,
  ];
}

export function removeDevice(name: string): readonly string[] {
  return [`link del ${name}`];
}

/** TU4 */
export function routesFound({ ends, hops }: FoundTunnel): TunnelRoutes {
  const peers = new Map<string, TunnelPeer>();
  const routes = new Map<string, string>();
  for (const end of ends) {
    const peer = peerOfHop(end);
    if (peer !== null) peers.set(peer.address, peer);
  }
  for (const [task, hop] of hops) {
    const peer = peerOfHop(hop);
    if (peer === null) continue;
    peers.set(peer.address, peer);
    routes.set(task, peer.address);
  }
  return { peers, routes };
}

const wholeOf = { 4: 32, 6: 128 } as const;

function familyOf(address: string): 4 | 6 {
  return address.includes(":") ? 6 : 4;
}

function prefixOf(task: string): string {
  return `${task}/${wholeOf[familyOf(task)]}`;
}

function hopsOf({ via }: TunnelPeer): ReadonlySet<string> {
  return new Set([via[4], via[6]]);
}

/** `anew`: nothing but the routes of `before` is known of the kernel, so all that there is to be is entered once more. */
export function tunnelLines(before: TunnelRoutes, after: TunnelRoutes, name: string, anew: boolean): TunnelLines {
  const lines = { meet: [] as string[], route: [] as string[], unroute: [] as string[], part: [] as string[] };
  for (const peer of after.peers.values()) {
    if (!anew && before.peers.has(peer.address)) continue;
    const { address, mac } = peer;
    lines.meet.push(`fdb replace ${mac} dev ${name} self permanent dst ${address}`);
    for (const hop of hopsOf(peer)) lines.route.push(`neigh replace ${hop} lladdr ${mac} dev ${name} nud permanent`);
  }
  for (const [task, at] of after.routes) {
    if (!anew && before.routes.get(task) === at) continue;
    const hop = after.peers.get(at)?.via[familyOf(task)] ?? at;
    const via = familyOf(task) === familyOf(hop) ? hop : `inet6 ${hop}`;
    lines.route.push(`route replace ${prefixOf(task)} via ${via} dev ${name} onlink`);
  }
  for (const task of before.routes.keys())
    if (!after.routes.has(task)) lines.unroute.push(`route del ${prefixOf(task)} dev ${name}`);
  for (const peer of before.peers.values()) {
    if (after.peers.has(peer.address)) continue;
    const { address, mac } = peer;
    for (const hop of hopsOf(peer)) lines.unroute.push(`neigh del ${hop} dev ${name}`);
    lines.part.push(`fdb del ${mac} dev ${name} self dst ${address}`);
  }
  return lines;
}
