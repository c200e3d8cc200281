/**
 * The part of a node's packet filter that its tasks' networks need besides policy: one nftables table of the agent, written
 * as a whole in one transaction.
 *
 * TN5: networks are isolated from each other, like engines' overlay networks: traffic between tasks passes only within a
 *      network that both are in. No traffic leaves or enters an internal network. Traffic to an address of the tasks'
 *      networks never leaves by another path, even while its location is unknown.
 * TN6: traffic from tasks to the outside has the node's address as its source; traffic between tasks keeps their own. A
 *      packet from a task's link without that task's source address is dropped.
 */
import type { LinkPlan, NetworkPlan } from "./plan.ts";

interface Subnet {
  readonly family: 4 | 6;
  readonly subnet: string;
  readonly isInternal: boolean;
}

const words = {
  4: { net: "ip", type: "ipv4_addr", loopback: "{ 127.0.0.0/8, 169.254.0.0/16 }" },
  6: { net: "ip6", type: "ipv6_addr", loopback: "{ ::1, fd6d:7374:6e61:6d65::/64 }" },
} as const;

export function tableOf(tag: string): string {
  return `inet muster-tasks-${tag}`;
}

/**
 * A script for `nft -f`. `ours`: name prefix of the node's ends of links. `tunnel`: name of the tunnel device to other nodes.
 */
export function rulesetOf(plans: readonly NetworkPlan[], table: string, ours: string, tunnel: string): string {
  // The first line ensures that there is a table to delete.
  const lines = [`table ${table} {}`, `delete table ${table}`];
  const subnets = subnetsOf(plans);
  if (subnets.length === 0) return `${lines.join("\n")}\n`;
  const families = ([4, 6] as const).filter((family) => subnets.some((subnet) => subnet.family === family));
  lines.push(`table ${table} {`);
  for (const family of families) {
    const of = subnets.filter((subnet) => subnet.family === family);
    const { type } = words[family];
    lines.push(
      ...set(
        `within${family}`,
        `${type} . ${type}`,
        of.map(({ subnet }) => `${subnet} . ${subnet}`),
      ),
    );
    lines.push(
      ...set(
        `tasks${family}`,
        type,
        of.map(({ subnet }) => subnet),
      ),
    );
    lines.push(
      ...set(
        `internal${family}`,
        type,
        of.filter(({ isInternal }) => isInternal).map(({ subnet }) => subnet),
      ),
    );
  }
  lines.push(
    "  chain spoken-for {",
    "    type filter hook prerouting priority raw; policy accept;",
    `    iifname "${ours}*" fib saddr . iif oif missing drop`,
    "  }",
  );
  lines.push("  chain between {", "    type filter hook forward priority filter - 5; policy accept;");
  for (const family of families) {
    const { net } = words[family];
    const across = `${net} saddr . ${net} daddr != @within${family}`;
    // Only this agent's networks: another agent on the machine may have others.
    for (const end of ["saddr", "daddr"])
      lines.push(`    iifname "${ours}*" oifname "${ours}*" ${net} ${end} @tasks${family} ${across} drop`);
    lines.push(
      `    ${net} saddr @internal${family} ${across} drop`,
      `    ${net} daddr @internal${family} ${across} drop`,
      `    iifname "${ours}*" oifname != { "${ours}*", "${tunnel}" } ${net} daddr @tasks${family} drop`,
    );
  }
  lines.push("  }", "  chain out {", "    type nat hook postrouting priority srcnat; policy accept;");
  for (const family of families) {
    const { net } = words[family];
    const outward = `${net} saddr @tasks${family} ${net} daddr != @tasks${family}`;
    lines.push(`    oifname != { "lo", "${ours}*" } ${outward} masquerade`);
  }
  lines.push("  }");
  for (const [chain, hook] of [
    ["in", "prerouting"],
    ["own", "output"],
  ] as const) {
    lines.push(`  chain ${chain} {`, `    type nat hook ${hook} priority -100; policy accept;`);
    for (const plan of plans) lines.push(...portRules(plan).map((rule) => `    ${rule}`));
    lines.push("  }");
  }
  lines.push("}");
  return `${lines.join("\n")}\n`;
}

/** Without duplicates and sorted, so that equal networks give equal text. */
function subnetsOf(plans: readonly NetworkPlan[]): readonly Subnet[] {
  const found = new Map<string, Subnet>();
  for (const { links } of plans)
    for (const { addresses, isInternal } of links)
      for (const { family, subnet } of addresses) found.set(subnet, { family, subnet, isInternal });
  return [...found.values()].toSorted((a, b) => (a.subnet < b.subnet ? -1 : 1));
}

function set(name: string, type: string, elements: readonly string[]): readonly string[] {
  const content = elements.length === 0 ? "" : ` elements = { ${elements.join(", ")} };`;
  return [`  set ${name} { type ${type}; flags interval;${content} }`];
}

/**
 * Ports are forwarded to the first network of each family that is not internal; a task with only internal networks gets none.
 */
function portRules({ links, ports }: NetworkPlan): readonly string[] {
  return ([4, 6] as const).flatMap((family) => {
    const to = addressToPublish(links, family);
    if (to === null) return [];
    const target = family === 4 ? to : `[${to}]`;
    return ports.map(
      ({ nodePort, protocol, taskPort }) =>
        // Answers to a loopback source address could not return; link-local addresses are the name servers of tasks.
        `${words[family].net} daddr != ${words[family].loopback} fib daddr type local ${protocol} dport ${nodePort} dnat ${words[family].net} to ${target}:${taskPort}`,
    );
  });
}

function addressToPublish(links: readonly LinkPlan[], family: 4 | 6): string | null {
  for (const { addresses, isInternal } of links) {
    const found = isInternal ? undefined : addresses.find((each) => each.family === family);
    if (found !== undefined) return found.address;
  }
  return null;
}
