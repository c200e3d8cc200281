/**
 * From the plan of a task's network to lines for `ip -batch` (iproute2), which runs all of them in one process.
 *
 * TN3: neighbours are entered by hand on both ends, so nothing is asked or answered on a link: no policy can break it, and a
 *      task cannot speak for another's address.
 * TN4: an address may be another task's until just now, whose links are not gone yet: routes are replaced, and so the newest
 *      task's counts. The earlier task's link takes only its own routes along.
 */
import type { LinkPlan, NetworkPlan } from "./plan.ts";

/** Of the node's end of every link; a task's neighbour is always the node, so they need not differ. */
const nodeMac = "ee:ee:ee:ee:ee:ee";

const wholeOf = { 4: 32, 6: 128 } as const;
const everywhere = { 4: "0.0.0.0/0", 6: "::/0" } as const;

/** What has to be in the kernel's settings, by path under /proc/sys. */
export function settingsFor({ links }: NetworkPlan): Readonly<Record<string, string>> {
  const hasV6 = links.some(({ addresses }) => addresses.some(({ family }) => family === 6));
  return { "net/ipv4/ip_forward": "1", ...(hasV6 ? { "net/ipv6/conf/all/forwarding": "1" } : {}) };
}

/**
 * In the node's own network. Without `namespace`, one of ours is made by that name; else it is a path of one that exists.
 * `mtu`: bytes that a packet of the task may have.
 */
export function makeOnNode({ links }: NetworkPlan, namespace: string, mtu: number): readonly string[] {
  const lines: string[] = [];
  if (!namespace.startsWith("/")) lines.push(`netns add ${namespace}`);
  for (const { addresses, hostInterface, taskInterface, taskMac } of links) {
    const task = `name ${taskInterface} mtu ${mtu} address ${taskMac} netns ${namespace}`;
    lines.push(`link add ${hostInterface} mtu ${mtu} address ${nodeMac} type veth peer ${task}`);
    lines.push(`link set ${hostInterface} up`);
    for (const { address, family, gateway } of addresses) {
      // The gateway is the node, on each of its links: tasks can reach it, and what it sends to a task comes from there.
      lines.push(`address add ${gateway}/${wholeOf[family]} dev ${hostInterface}${family === 6 ? " nodad" : ""}`);
      lines.push(`neigh replace ${address} lladdr ${taskMac} dev ${hostInterface} nud permanent`);
      lines.push(`route replace ${address}/${wholeOf[family]} dev ${hostInterface} src ${gateway}`);
    }
  }
  return lines;
}

/** In the task's. `nameServers`: of the node itself, which the task may ask; null: there are none. */
export function makeInTask(
  { links }: NetworkPlan,
  nameServers: Readonly<Record<4 | 6, string>> | null = null,
): readonly string[] {
  const lines = ["link set lo up"];
  const isAsking = new Set<4 | 6>();
  const hasDefault = new Set<4 | 6>();
  for (const link of links) {
    const { addresses, isInternal, taskInterface: dev } = link;
    for (const { address, family } of addresses)
      lines.push(`address add ${address}/${wholeOf[family]} dev ${dev}${family === 6 ? " nodad" : ""}`);
    lines.push(`link set ${dev} up`);
    for (const { address, family, gateway, subnet } of addresses) {
      const way = `via ${gateway} dev ${dev} onlink src ${address}`;
      lines.push(`neigh replace ${gateway} lladdr ${nodeMac} dev ${dev} nud permanent`);
      lines.push(`route replace ${subnet} ${way}`);
      // Also in a network that nothing else leads out of.
      if (nameServers !== null && !isAsking.has(family)) {
        isAsking.add(family);
        lines.push(`route replace ${nameServers[family]}/${wholeOf[family]} ${way}`);
      }
      if (isInternal || hasDefault.has(family)) continue;
      hasDefault.add(family);
      lines.push(`route replace ${everywhere[family]} ${way}`);
    }
  }
  return lines;
}

/** Takes all of it away, whatever there is of it: each line may fail. A link's two ends go together. */
export function unmake(links: readonly Pick<LinkPlan, "hostInterface">[], namespace: string): readonly string[] {
  const lines = links.map(({ hostInterface }) => `link del ${hostInterface}`);
  return namespace.startsWith("/") ? lines : [...lines, `netns del ${namespace}`];
}
