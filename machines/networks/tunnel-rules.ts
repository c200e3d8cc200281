/**
 * The packet filter of the tunnel: one nftables table of the agent's own, beside that of its tasks' networks.
 *
 * TU5: what arrives is let in only when the pair of who sends it and who is said to have sent it is listed (TU3); the kernel looks
 *      at both addresses in the packet between the nodes, before it is taken out of it.
 * TU6: what is taken out goes to a task and comes from a task of the same network; nothing else goes in. A node's own addresses
 *      are neither reached by way of the tunnel nor spoken for, and no task makes packets of the tunnel itself.
 * TU7: a change is one transaction, and only of what changes.
 */
import { parseAddress } from "../ip-address.ts";
import { tunnelId, type TunnelPlan } from "./tunnel-plan.ts";

/** Of the table of one agent's tunnel. */
export function tunnelTable(tag: string): string {
  return `inet muster-tunnel-${tag}`;
}

/** A script that takes the table away, whether it is there or not. */
export function withoutTunnel(table: string): string {
  return `add table ${table}\ndelete table ${table}\n`;
}

const families = [4, 6] as const;
type Family = (typeof families)[number];

/** In bits from the UDP header, which is 8 bytes and has VXLAN's 8 and Ethernet's 14 behind it; RFC 7348 §5. */
const identifier = "@th,96,24";
const innerType = "@th,224,16";
const words = {
  4: { net: "ip", type: "ipv4_addr", innerType: "0x0800", innerSource: "@th,336,32" },
  6: { net: "ip6", type: "ipv6_addr", innerType: "0x86dd", innerSource: "@th,304,128" },
} as const;

function familyOf(address: string): Family {
  return address.includes(":") ? 6 : 4;
}

/** A script of everything. `device`: the tunnel's; `ours`: first letters of the names of the node's ends of links. */
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
    // Where the packet is whole again, if it came in parts.
    `add chain ${table} arriving { type filter hook input priority filter - 5; policy accept; }`,
    `add rule ${table} arriving iifname "${device}" drop`,
    `add rule ${table} arriving ${tunnelled} goto listed`,
    `add chain ${table} across { type filter hook forward priority filter - 4; policy accept; }`,
    // A task's packet to another node has this node's address there.
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

/** A script from one plan to the next of the same device; null when there is nothing to do. TU7 */
export function changedTunnel(before: TunnelPlan, after: TunnelPlan, table: string): string | null {
  const lines = difference(before, after, table);
  return lines.length === 0 ? null : `${lines.join("\n")}\n`;
}

function difference(before: TunnelPlan | null, after: TunnelPlan, table: string): readonly string[] {
  const lines: string[] = [];
  for (const family of families) {
    const remote = (plan: TunnelPlan): readonly string[] =>
      [...plan.routes].filter(([task]) => familyOf(task) === family).map(([task, peer]) => `${peer} . ${hexOf(task)}`);
    const within = (plan: TunnelPlan): readonly string[] =>
      plan.subnets.filter((subnet) => familyOf(subnet) === family).map((subnet) => `${subnet} . ${subnet}`);
    change(lines, `${table} remote${family}`, before === null ? [] : remote(before), remote(after));
    change(lines, `${table} within${family}`, before === null ? [] : within(before), within(after));
  }
  return lines;
}

/** What is looked at in a packet is a number to nftables. */
function hexOf(address: string): string {
  return `0x${(parseAddress(address)?.value ?? 0n).toString(16)}`;
}

/** More on one line nft would read as one list of tokens. */
const elementsPerLine = 10_000;

function change(lines: string[], set: string, before: readonly string[], after: readonly string[]): void {
  elements(lines, "delete", set, without(before, after));
  elements(lines, "add", set, without(after, before));
}

function elements(lines: string[], verb: "add" | "delete", set: string, all: readonly string[]): void {
  for (let at = 0; at < all.length; at += elementsPerLine)
    lines.push(`${verb} element ${set} { ${all.slice(at, at + elementsPerLine).join(", ")} }`);
}

function without(all: readonly string[], others: readonly string[]): readonly string[] {
  const known = new Set(others);
  return all.filter((each) => !known.has(each));
}
