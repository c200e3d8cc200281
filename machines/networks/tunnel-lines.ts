/**
 * From the kernel's current tunnel state to the wanted one: lines for `ip -batch` and `bridge -batch`.
 *
 * TU4: a peer's forwarding entry is added before all its other entries, and removed last: wherever an update is interrupted,
 *      these entries and the routes show what is left.
 */
import { peerOfHop, tunnelId, type TunnelDevice, type TunnelPeer, type TunnelRoutes } from "./tunnel-plan.ts";

/** The kernel's current state of a tunnel. */
export interface FoundTunnel extends TunnelDevice {
  readonly mtu: number;
  /** Next hop by destination, both without prefix lengths. */
  readonly hops: ReadonlyMap<string, string>;
  /** Addresses of the peers that have forwarding entries. */
  readonly ends: readonly string[];
}

/** To be run in this order. */
interface TunnelLines {
  /** For `bridge`: the outer address of each hardware address. */
  readonly meet: readonly string[];
  /** For `ip`. */
  readonly route: readonly string[];
  /** For `ip` and for `bridge`: each line may fail, because the entry may no longer exist. */
  readonly unroute: readonly string[];
  readonly part: readonly string[];
}

/** `tag`: the agent's. Policy recognises the ends of tasks' links by their names; this name is not one of those. */
export function tunnelDevice(tag: string): string {
  return `vxm${tag}`;
}

export function isSameDevice(found: FoundTunnel, { local, mac, port }: TunnelDevice, mtu: number): boolean {
  return found.local === local && found.mac === mac && found.port === port && found.mtu === mtu;
}

export function makeDevice(name: string, { local, mac, port }: TunnelDevice, mtu: number): readonly string[] {
  // No learning from received packets: the location of each task is known.
  const kind = `type vxlan id ${tunnelId} local ${local} dstport ${port} nolearning`;
  return [
    `link add ${name} mtu ${mtu} address ${mac} ${kind}`,
    // The device has no address: nothing on a node is reached through the tunnel.
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

/** `anew`: only the routes of `before` are known to be in the kernel, so everything wanted is added again. */
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
