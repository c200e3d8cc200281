/**
 * From the plan of a task's network to lines for `ip -batch` (iproute2), which runs them in one process.
 *
 * TN3: neighbour entries are static on both ends, so a link carries no ARP or ND: no policy can break it, and a task cannot
 *      claim another's address.
 * TN4: an address may have belonged to another task until just now, whose links still exist: routes are replaced, so the
 *      newest task's route applies. The earlier task's link removes only its own routes.
 */
import type { LinkPlan, NetworkPlan } from "./plan.ts";

/** The node's end of every link; a task's only neighbour is the node, so all links may have the same address. */
const nodeMac = "ee:ee:ee:ee:ee:ee";

const wholeOf = { 4: 32, 6: 128 } as const;
const everywhere = { 4: "0.0.0.0/0", 6: "::/0" } as const;

/** Required kernel settings, by path under /proc/sys. */
export function settingsFor({ links }: NetworkPlan): Readonly<Record<string, string>> {
  const hasV6 = links.some(({ addresses }) => addresses.some(({ family }) => family === 6));
  return { "net/ipv4/ip_forward": "1", ...(hasV6 ? { "net/ipv6/conf/all/forwarding": "1" } : {}) };
}

/**
 * Lines for the node's network namespace. `namespace`: the path of an existing one, or the name of one to create. `mtu`:
 * maximum size of the task's packets, in bytes.
 */
export function makeOnNode({ links }: NetworkPlan, namespace: string, mtu: number): readonly string[] {
  const lines: string[] = [];
  if (!namespace.startsWith("/")) lines.push(`netns add ${namespace}`);
  for (const { addresses, hostInterface, taskInterface, taskMac } of links) {
    const task = `name ${taskInterface} mtu ${mtu} address ${taskMac} netns ${namespace}`;
    lines.push(`link add ${hostInterface} mtu ${mtu} address ${nodeMac} type veth peer ${task}`);
    lines.push(`link set ${hostInterface} up`);
    for (const { address, family, gateway } of addresses) {
      // The node is the gateway on each link: tasks can reach it, and its packets to a task have this source address.
      lines.push(`address add ${gateway}/${wholeOf[family]} dev ${hostInterface}${family === 6 ? " nodad" : ""}`);
      lines.push(`neigh replace ${address} lladdr ${taskMac} dev ${hostInterface} nud permanent`);
      lines.push(`route replace ${address}/${wholeOf[family]} dev ${hostInterface} src ${gateway}`);
    }
  }
  return lines;
}

/** Lines for the task's namespace. `nameServers`: addresses of the node's DNS server for the task; null if it has none. */
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
      // Also in an internal network.
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

/** Removes everything that exists; each line may fail. Both ends of a link are removed together. */
export function unmake(links: readonly Pick<LinkPlan, "hostInterface">[], namespace: string): readonly string[] {
  const lines = links.map(({ hostInterface }) => `link del ${hostInterface}`);
  return namespace.startsWith("/") ? lines : [...lines, `netns del ${namespace}`];
}
