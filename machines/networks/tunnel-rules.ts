/**
 * The packet filter of the tunnel: one nftables table of the agent, beside that of its tasks' networks.
 *
 * TU5: a packet is accepted only if the pair of its outer and inner source addresses is listed (TU3); both are checked in the
 *      outer packet, before decapsulation.
 * TU6: a decapsulated packet must go to a task and come from a task of the same network; nothing else enters. A node's own
 *      addresses can be neither reached nor impersonated through the tunnel, and no task can send tunnel packets itself.
 * TU7: a change is one transaction, and contains only what changes.
 */
import { parseAddress } from "../../lib/ip-address.ts";
import { tunnelId, type TunnelPlan } from "./tunnel-plan.ts";

/** The name of the table of one agent's tunnel. */
export function tunnelTable(tag: string): string {
  return `inet muster-tunnel-${tag}`;
}

/** A script that deletes the table, whether or not it exists. */
export function withoutTunnel(table: string): string {
  return `add table ${table}\ndelete table ${table}\n`;
}

const families = [4, 6] as const;
type Family = (typeof families)[number];

/** In bits from the UDP header, which has 8 bytes and is followed by 8 of VXLAN and 14 of Ethernet; RFC 7348 §5. */
const identifier = "@th,96,24";
const innerType = "@th,224,16";
const words = {
  4: { net: "ip", type: "ipv4_addr", innerType: "0x0800", innerSource: "@th,336,32" },
  6: { net: "ip6", type: "ipv6_addr", innerType: "0x86dd", innerSource: "@th,304,128" },
} as const;

function familyOf(address: string): Family {
  return address.includes(":") ? 6 : 4;
}

/** A script that writes everything. `device`: the tunnel's; `ours`: name prefix of the node's ends of links. */
export function wholeTunnel(plan: TunnelPlan, table: string, device: string, ours: string): string {
  const tunnelled = `udp dport ${plan.device.port} ${identifier} ${tunnelId}`;
  const outer = words[familyOf(plan.device.local)].net;
  const lines = [`add table ${table}`, `delete table ${table}`, `add table ${table}`];
  for (const family of families) {
    const { innerSource, type } = words[family];
    lines.push(
      `add set ${table} remote${family} { typeof ${outer} saddr . ${innerSource}; }`,
      `add set ${table} within${family} { type ${type} . ${type}; flags interval; }`,
    );
  }
  lines.push(
    `add chain ${table} listed`,
    // Where fragmented packets are reassembled.
    `add chain ${table} arriving { type filter hook input priority filter - 5; policy accept; }`,
    `add rule ${table} arriving iifname "${device}" drop`,
    `add rule ${table} arriving ${tunnelled} goto listed`,
    `add chain ${table} across { type filter hook forward priority filter - 4; policy accept; }`,
    // A task's packet to another node has this node's source address there.
    `add rule ${table} across iifname "${ours}*" ${tunnelled} drop`,
    `add rule ${table} across iifname "${device}" oifname != "${ours}*" drop`,
    `add rule ${table} across oifname "${device}" iifname != "${ours}*" drop`,
  );
  for (const family of families) {
    const { innerSource, innerType: is, net } = words[family];
    lines.push(`add rule ${table} listed ${innerType} ${is} ${outer} saddr . ${innerSource} @remote${family} accept`);
    for (const way of ["iifname", "oifname"])
      lines.push(`add rule ${table} across ${way} "${device}" ${net} saddr . ${net} daddr != @within${family} drop`);
  }
  lines.push(`add rule ${table} listed drop`);
  return `${[...lines, ...difference(null, plan, table)].join("\n")}\n`;
}

/** A script from one plan to the next for the same device; null if they are equal. TU7 */
export function changedTunnel(before: TunnelPlan, after: TunnelPlan, table: string): string | null {
  const lines = difference(before, after, table);
  return lines.length === 0 ? null : `${lines.join("\n")}\n`;
}

function difference(before: TunnelPlan | null, after: TunnelPlan, table: string): readonly string[] {
  const lines: string[] = [];
  const nothing: Pick<TunnelPlan, "routes" | "subnets"> = { routes: new Map(), subnets: [] };
  const old = before ?? nothing;
  for (const family of families) {
    elements(lines, "delete", `${table} remote${family}`, pairs(old.routes, after.routes, family));
    elements(lines, "add", `${table} remote${family}`, pairs(after.routes, old.routes, family));
    elements(lines, "delete", `${table} within${family}`, within(old.subnets, after.subnets, family));
    elements(lines, "add", `${table} within${family}`, within(after.subnets, old.subnets, family));
  }
  return lines;
}

/** The pairs of routes that `others` lacks. */
function pairs(routes: TunnelPlan["routes"], others: TunnelPlan["routes"], family: Family): readonly string[] {
  const list: string[] = [];
  for (const [task, peer] of routes)
    if (others.get(task) !== peer && familyOf(task) === family) list.push(`${peer} . ${hexOf(task)}`);
  return list;
}

function within(subnets: readonly string[], others: readonly string[], family: Family): readonly string[] {
  const left = subnets.filter((subnet) => familyOf(subnet) === family && !others.includes(subnet));
  return left.map((subnet) => `${subnet} . ${subnet}`);
}

/** nftables compares raw packet fields as numbers. */
function hexOf(address: string): string {
  return `0x${(parseAddress(address)?.value ?? 0n).toString(16)}`;
}

/** nft would read more on one line as one list of tokens. */
const elementsPerLine = 10_000;

function elements(lines: string[], verb: "add" | "delete", set: string, all: readonly string[]): void {
  for (let at = 0; at < all.length; at += elementsPerLine)
    lines.push(`${verb} element ${set} { ${all.slice(at, at + elementsPerLine).join(", ")} }`);
}
