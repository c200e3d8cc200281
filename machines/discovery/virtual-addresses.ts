/**
 * Load balancing for virtual IPs of services: one nftables table of the agent, beside that of its tasks' networks. A packet
 * from a task of this node to a virtual IP is redirected to one of the service's tasks as soon as it leaves the task's link.
 *
 * VA1: each connection goes to one of the tasks that were ready when it began, chosen uniformly, and stays there.
 * VA2: policy and network isolation apply afterwards: they see the real destination.
 * VA3: a connection to a service without a ready task is refused, not dropped; so is traffic of an existing connection to a
 *      removed task.
 * VA4: a task that reaches itself through its service's virtual IP sees the node as the source: it would treat a packet from
 *      its own address as forged.
 * VA5: a change is one transaction, and contains only what changes; after a failed one, everything is written again.
 */
import type { NetworksState } from "../networks/state.ts";
import { isReached } from "./reached.ts";

/** The table of one node; lists are sorted, so that equal facts give equal plans. */
export interface VirtualPlan {
  /** By virtual IP: the addresses of the service's ready tasks. */
  readonly services: ReadonlyMap<string, readonly string[]>;
  /** Addresses of all existing tasks in the networks, ready or not. */
  readonly known: readonly string[];
  /** Addresses of this node's tasks, and the node's ends of their links. */
  readonly own: readonly string[];
  readonly links: readonly string[];
}

/** The link of one of the node's own tasks. */
interface OwnLink {
  readonly hostInterface: string;
  readonly addresses: readonly { readonly address: string }[];
}

export function virtualPlan(view: NetworksState, ownNodeId: string, links: readonly OwnLink[]): VirtualPlan {
  const ready = new Map<string, string[]>();
  const known = new Set<string>();
  for (const task of view.tasks.values()) {
    for (const address of task.addresses) known.add(address);
    if (!task.ready || task.serviceId === "" || !isReached(view, task, ownNodeId)) continue;
    const key = `${task.serviceId}/${task.networkId}`;
    const addresses = ready.get(key);
    if (addresses === undefined) ready.set(key, [...task.addresses]);
    else addresses.push(...task.addresses);
  }
  const services = new Map<string, readonly string[]>();
  for (const { networkId, serviceId, virtualAddress } of view.services.values()) {
    if (virtualAddress === "") continue;
    const family = familyOf(virtualAddress);
    const addresses = ready.get(`${serviceId}/${networkId}`) ?? [];
    services.set(virtualAddress, addresses.filter((address) => familyOf(address) === family).sort());
  }
  const own = links.flatMap(({ addresses }) => addresses.map(({ address }) => address));
  return {
    services: new Map([...services].sort(([a], [b]) => (a < b ? -1 : 1))),
    known: [...known].sort(),
    own: own.sort(),
    links: links.map(({ hostInterface }) => hostInterface).sort(),
  };
}

/** The table of an agent's virtual IPs. `tag`: the agent's. */
export function virtualTableOf(tag: string): string {
  return `inet muster-services-${tag}`;
}

/** A script that deletes the table, whether or not it exists. */
export function withoutVirtual(table: string): string {
  return `add table ${table}\ndelete table ${table}\n`;
}

const families = [4, 6] as const;
type Family = (typeof families)[number];
const words = { 4: { net: "ip", type: "ipv4_addr" }, 6: { net: "ip6", type: "ipv6_addr" } } as const;

function familyOf(address: string): Family {
  return address.includes(":") ? 6 : 4;
}

/** A script that writes everything. VA5 */
export function wholeVirtual(plan: VirtualPlan, table: string): string {
  const lines = [`add table ${table}`, `delete table ${table}`, `add table ${table}`];
  lines.push(`add set ${table} links { type ifname; }`);
  for (const family of families) {
    const { type } = words[family];
    lines.push(
      `add map ${table} services${family} { type ${type} : verdict; }`,
      `add set ${table} virtual${family} { type ${type}; }`,
      `add set ${table} known${family} { type ${type}; }`,
      `add set ${table} own${family} { type ${type} . ${type}; }`,
    );
  }
  // After the source check, and before any check of the destination. VA2
  lines.push(`add chain ${table} in { type nat hook prerouting priority -100; policy accept; }`);
  lines.push(`add chain ${table} refused { type filter hook forward priority filter - 6; policy accept; }`);
  lines.push(`add chain ${table} to-itself { type nat hook postrouting priority srcnat - 1; policy accept; }`);
  for (const family of families) {
    const { net } = words[family];
    lines.push(`add rule ${table} in iifname @links ${net} daddr vmap @services${family}`);
    const gone = `ct direction original ct original ${net} daddr @virtual${family} ${net} daddr != @known${family}`;
    // VA3: the first rule ends an existing connection, every protocol understands the second.
    for (const answer of ["meta l4proto tcp reject with tcp reset", "reject"])
      lines.push(`add rule ${table} refused iifname @links ${gone} ${answer}`);
    lines.push(`add rule ${table} to-itself ${net} saddr . ${net} daddr @own${family} masquerade`);
  }
  return `${[...lines, ...difference(nothing, plan, table)].join("\n")}\n`;
}

/** A script from one plan to the next; null if they are equal. VA5 */
export function changedVirtual(before: VirtualPlan, after: VirtualPlan, table: string): string | null {
  const lines = difference(before, after, table);
  return lines.length === 0 ? null : `${lines.join("\n")}\n`;
}

const nothing: VirtualPlan = { services: new Map(), known: [], own: [], links: [] };

function difference(before: VirtualPlan, after: VirtualPlan, table: string): readonly string[] {
  const lines: string[] = [];
  const gone = [...before.services.keys()].filter((address) => !after.services.has(address));
  const came = [...after.services.keys()].filter((address) => !before.services.has(address));
  for (const address of came) lines.push(`add chain ${table} ${chainOf(address)}`);
  for (const [address, to] of after.services) {
    const earlier = before.services.get(address);
    if (earlier !== undefined && isSame(earlier, to)) continue;
    if (earlier !== undefined) lines.push(`flush chain ${table} ${chainOf(address)}`);
    if (to.length > 0) lines.push(`add rule ${table} ${chainOf(address)} ${ruleTo(to)}`);
  }
  const verdicts = (addresses: readonly string[]): readonly string[] =>
    addresses.map((address) => `${address} : goto ${chainOf(address)}`);
  elements(lines, "delete", table, "services", verdicts(gone));
  elements(lines, "delete", table, "virtual", gone);
  elements(lines, "add", table, "services", verdicts(came));
  elements(lines, "add", table, "virtual", came);
  for (const address of gone) lines.push(`flush chain ${table} ${chainOf(address)}`);
  for (const address of gone) lines.push(`delete chain ${table} ${chainOf(address)}`);
  changed(lines, table, "known", before.known, after.known);
  const pairs = (addresses: readonly string[]): readonly string[] => addresses.map((each) => `${each} . ${each}`);
  changed(lines, table, "own", pairs(before.own), pairs(after.own));
  const [left, fresh] = [without(before.links, after.links), without(after.links, before.links)];
  if (left.length > 0) lines.push(`delete element ${table} links { ${left.map(quoted).join(", ")} }`);
  if (fresh.length > 0) lines.push(`add element ${table} links { ${fresh.map(quoted).join(", ")} }`);
  return lines;
}

/** Chain names cannot contain colons. */
function chainOf(address: string): string {
  return `to-${address.replaceAll(":", "_")}`;
}

/** VA1 */
function ruleTo(addresses: readonly string[]): string {
  const [first = ""] = addresses;
  const { net } = words[familyOf(first)];
  if (addresses.length === 1) return `dnat ${net} to ${first}`;
  const choices = addresses.map((address, at) => `${at} : ${address}`).join(", ");
  return `dnat ${net} to numgen random mod ${addresses.length} map { ${choices} }`;
}

function changed(
  lines: string[],
  table: string,
  name: string,
  before: readonly string[],
  after: readonly string[],
): void {
  elements(lines, "delete", table, name, without(before, after));
  elements(lines, "add", table, name, without(after, before));
}

/** nft would read more on one line as one list of tokens. */
const elementsPerLine = 10_000;

/** Elements of both families; an element's first address decides its family. */
function elements(lines: string[], verb: "add" | "delete", table: string, name: string, all: readonly string[]): void {
  for (const family of families) {
    const of = all.filter((element) => familyOf(element.split(" ")[0] as string) === family);
    for (let at = 0; at < of.length; at += elementsPerLine)
      lines.push(`${verb} element ${table} ${name}${family} { ${of.slice(at, at + elementsPerLine).join(", ")} }`);
  }
}

function without(all: readonly string[], others: readonly string[]): readonly string[] {
  const known = new Set(others);
  return all.filter((each) => !known.has(each));
}

function isSame(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((each, at) => each === b[at]);
}

function quoted(text: string): string {
  return `"${text}"`;
}
