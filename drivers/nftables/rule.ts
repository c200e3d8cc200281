/**
 * Renders one rule of a policy or profile as nft rules (docs/reference/felix-dataplane-protocol.md §11.1).
 *
 * C1: a rule that is invalid or names an unknown set only closes: an allow rule is omitted, and a deny rule applies to more
 *     packets rather than fewer.
 */
import { IPVersion, type IcmpTypeAndCode, type PortRange, type Protocol, type Rule } from "../../proto/gen/felix.ts";
import type { Prefix } from "../../lib/ip-address.ts";
import { netText, outermost, parseNet, type Family } from "./addresses.ts";
import type { Settings } from "./config.ts";
import { families, IpSetType, setName } from "./ip-set.ts";
import { logPrefix } from "./names.ts";
import { portProtocols, protocolNumber } from "./protocols.ts";

export interface RuleSurroundings {
  readonly settings: Settings;
  /** Null while a set is unknown or unusable. */
  typeOf(setId: string): IpSetType | null;
  /** Accepted packets are not tracked. */
  readonly isUntracked: boolean;
}

interface RenderedRule {
  readonly lines: readonly string[];
  /** Why the rule is not rendered as main wants it; null if it is. C1 */
  readonly problem: string | null;
}

/** The rule cannot be rendered. */
class Unrenderable extends Error {}
/** The rule matches no packet. */
class Never extends Error {}

type Action = "allow" | "deny" | "pass" | "log";

function actionOf(text: string): Action {
  switch (text.toLowerCase()) {
    case "":
    case "allow":
      return "allow";
    case "deny":
      return "deny";
    case "pass":
    case "next-tier":
      return "pass";
    case "log":
      return "log";
    default:
      throw new Unrenderable(`invalid action ${JSON.stringify(text)}`);
  }
}

export function hex(value: number): string {
  return `0x${value.toString(16)}`;
}

/** This node's drop, with a log statement if configured. */
export function dropOf(settings: Settings): string {
  return settings.logsDrops ? `log prefix ${logPrefix("calico-drop: ")} level notice drop` : "drop";
}

export function renderRule(rule: Rule, around: RuleSurroundings): RenderedRule {
  let action: Action = "deny";
  try {
    action = actionOf(rule.action);
    if (rule.httpMatch !== null && action !== "deny") throw new Unrenderable("HTTP matches are not supported");
    return { lines: new RuleWriter(rule, action, around).lines(), problem: null };
  } catch (error) {
    if (!(error instanceof Unrenderable)) throw error;
    const lines = action === "allow" || action === "log" ? [] : [dropOf(around.settings)];
    return { lines, problem: error.message };
  }
}

class RuleWriter {
  readonly #rule: Rule;
  readonly #around: RuleSurroundings;
  /** Matching more packets would let more of them pass. */
  readonly #opens: boolean;
  #action: Action;

  constructor(rule: Rule, action: Action, around: RuleSurroundings) {
    this.#rule = rule;
    this.#around = around;
    this.#action = action;
    this.#opens = action === "allow" || action === "log";
  }

  lines(): readonly string[] {
    const lines: string[] = [];
    const texts = new Set<Family>([4, 6].filter((family) => this.#isFor(family as Family)) as Family[]);
    for (const family of this.#isNeutral() ? [null] : families) {
      if (family !== null && !texts.has(family)) continue;
      try {
        for (const criteria of this.#criteria(family)) lines.push([...criteria, ...this.#verdict()].join(" "));
      } catch (error) {
        if (!(error instanceof Never)) throw error;
      }
    }
    return lines;
  }

  /** Its criteria mean the same in both families. */
  #isNeutral(): boolean {
    const rule = this.#rule;
    const hasNets = [rule.srcNet, rule.dstNet, rule.notSrcNet, rule.notDstNet].some((list) => list.length > 0);
    const isIcmp = rule.icmpType !== null || rule.icmpTypeCode !== null;
    const isNotIcmp = rule.notIcmpType !== null || rule.notIcmpTypeCode !== null;
    return (
      rule.ipVersion === IPVersion.ANY &&
      !hasNets &&
      !isIcmp &&
      !isNotIcmp &&
      !this.#namesSets() &&
      this.#isFor(4) &&
      this.#isFor(6)
    );
  }

  #namesSets(): boolean {
    const rule = this.#rule;
    return [
      rule.srcIpSetIds,
      rule.dstIpSetIds,
      rule.notSrcIpSetIds,
      rule.notDstIpSetIds,
      rule.srcNamedPortIpSetIds,
      rule.dstNamedPortIpSetIds,
      rule.notSrcNamedPortIpSetIds,
      rule.notDstNamedPortIpSetIds,
      rule.dstIpPortSetIds,
    ].some((list) => list.length > 0);
  }

  #isFor(family: Family): boolean {
    const { ipVersion, protocol } = this.#rule;
    if (ipVersion === IPVersion.IPV4 && family === 6) return false;
    if (ipVersion === IPVersion.IPV6 && family === 4) return false;
    if (ipVersion !== IPVersion.ANY && ipVersion !== IPVersion.IPV4 && ipVersion !== IPVersion.IPV6)
      throw new Unrenderable(`invalid IP version ${String(ipVersion)}`);
    // ICMP of one family never appears in the other (§11.1).
    const name = protocol?.name?.toLowerCase() ?? "";
    return !(name === "icmp" && family === 6) && !(name === "icmpv6" && family === 4);
  }

  /** One list per alternative. Throws Never if there is none. */
  #criteria(family: Family | null): readonly (readonly string[])[] {
    const rule = this.#rule;
    const fixed: string[] = family === null ? [] : [`meta nfproto ipv${family}`];
    const protocol = this.#protocol(rule.protocol);
    if (protocol !== null) fixed.push(`meta l4proto ${protocol}`);
    const other = this.#protocol(rule.notProtocol);
    if (other !== null) fixed.push(`meta l4proto != ${other}`);
    if (family !== null) {
      const ip = family === 4 ? "ip" : "ip6";
      this.#addNets(fixed, `${ip} saddr`, rule.srcNet, rule.notSrcNet, family);
      this.#addNets(fixed, `${ip} daddr`, rule.dstNet, rule.notDstNet, family);
      this.#addSets(fixed, `${ip} saddr`, rule.srcIpSetIds, rule.notSrcIpSetIds, family);
      this.#addSets(fixed, `${ip} daddr`, rule.dstIpSetIds, rule.notDstIpSetIds, family);
      this.#addIcmp(fixed, family);
    }
    return this.#withPorts(fixed, protocol, family);
  }

  #protocol(protocol: Protocol | null): number | null {
    if (protocol === null) return null;
    const number = protocolNumber((protocol.name ?? String(protocol.number ?? "")).toLowerCase());
    if (number === null) throw new Unrenderable(`invalid protocol ${JSON.stringify(protocol.name ?? protocol.number)}`);
    return number;
  }

  #addNets(
    criteria: string[],
    field: string,
    wanted: readonly string[],
    refused: readonly string[],
    family: Family,
  ): void {
    const positive = this.#nets(wanted, family);
    if (positive !== null && positive[0]?.length !== 0) criteria.push(`${field} ${listText(positive.map(netText))}`);
    const negative = this.#nets(refused, family);
    if (negative === null) return;
    // No address is outside of all addresses.
    if (negative[0]?.length === 0) throw new Never();
    criteria.push(`${field} != ${listText(negative.map(netText))}`);
  }

  /** Null: no criterion. Throws Never if all nets are of the other family: the rule does not apply to this one (§11.1). */
  #nets(texts: readonly string[], family: Family): readonly Prefix[] | null {
    if (texts.length === 0) return null;
    const nets = texts.map((text) => {
      const net = parseNet(text);
      if (net === null) throw new Unrenderable(`invalid network ${JSON.stringify(text)}`);
      return net;
    });
    const own = nets.filter((net) => net.family === family);
    if (own.length === 0) throw new Never();
    return outermost(own);
  }

  #addSets(
    criteria: string[],
    field: string,
    wanted: readonly string[],
    refused: readonly string[],
    family: Family,
  ): void {
    for (const [ids, operator] of [
      [wanted, ""],
      [refused, "!= "],
    ] as const) {
      for (const id of ids) {
        const type = this.#around.typeOf(id);
        if (type === null || type === IpSetType.IP_AND_PORT) this.#closeFor();
        else criteria.push(`${field} ${operator}@${setName(id, type, family)}`);
      }
    }
  }

  /** A criterion cannot be expressed: an opening rule is omitted, a drop applies without the criterion. C1 */
  #closeFor(): void {
    if (this.#opens) throw new Never();
    this.#action = "deny";
  }

  #addIcmp(criteria: string[], family: Family): void {
    const { icmpType, icmpTypeCode, notIcmpType, notIcmpTypeCode } = this.#rule;
    const word = family === 4 ? "icmp" : "icmpv6";
    const isAny = icmpType !== null || icmpTypeCode !== null || notIcmpType !== null || notIcmpTypeCode !== null;
    if (!isAny) return;
    criteria.push(`meta l4proto ${family === 4 ? 1 : 58}`);
    if (icmpType !== null) criteria.push(`${word} type ${byte(icmpType)}`);
    if (icmpTypeCode !== null)
      criteria.push(`${word} type ${icmpText(icmpTypeCode)[0]} ${word} code ${icmpText(icmpTypeCode)[1]}`);
    if (notIcmpType !== null) criteria.push(`${word} type != ${byte(notIcmpType)}`);
    if (notIcmpTypeCode !== null)
      criteria.push(`${word} type . ${word} code != { ${icmpText(notIcmpTypeCode).join(" . ")} }`);
  }

  #withPorts(fixed: readonly string[], protocol: number | null, family: Family | null): readonly (readonly string[])[] {
    const rule = this.#rule;
    const from = this.#portAlternatives("sport", rule.srcPorts, rule.srcNamedPortIpSetIds, family);
    const to = this.#portAlternatives("dport", rule.dstPorts, rule.dstNamedPortIpSetIds, family);
    const refused = [
      ...this.#refusedPorts("sport", rule.notSrcPorts, rule.notSrcNamedPortIpSetIds, family),
      ...this.#refusedPorts("dport", rule.notDstPorts, rule.notDstNamedPortIpSetIds, family),
    ];
    const required: string[] = [];
    for (const id of rule.dstIpPortSetIds) {
      const name = this.#portSet(id, family);
      if (name !== null) required.push(`${addressField(family, "dport")} . meta l4proto . th dport @${name}`);
    }
    const hasWanted = from !== null || to !== null || required.length > 0;
    if (!hasWanted && refused.length === 0) return [fixed];
    const guard = listText(portProtocols.map(String));
    if (protocol !== null && !portProtocols.includes(protocol)) {
      // These packets have no ports: a positive match opens nothing, and a negative match excludes none of them.
      if (hasWanted) this.#closeFor();
      return [fixed];
    }
    const guarded = protocol === null ? [...fixed, `meta l4proto ${guard}`] : fixed;
    const lines: (readonly string[])[] = [];
    for (const source of from ?? [""])
      for (const target of to ?? [""])
        lines.push([...guarded, source, target, ...required, ...refused].filter((part) => part !== ""));
    // A negative port match does not exempt packets without ports from a drop.
    if (!hasWanted && protocol === null && !this.#opens) lines.push([...fixed, `meta l4proto != ${guard}`]);
    return lines;
  }

  /** Null: no criterion. */
  #portAlternatives(
    side: "sport" | "dport",
    ranges: readonly PortRange[],
    setIds: readonly string[],
    family: Family | null,
  ): readonly string[] | null {
    if (ranges.length === 0 && setIds.length === 0) return null;
    const alternatives: string[] = ranges.length === 0 ? [] : [`th ${side} ${portsText(ranges)}`];
    for (const id of setIds) {
      const type = this.#around.typeOf(id);
      if (type === IpSetType.IP_AND_PORT && family !== null)
        alternatives.push(`${addressField(family, side)} . meta l4proto . th ${side} @${setName(id, type, family)}`);
      else if (!this.#opens) {
        this.#action = "deny";
        return null;
      }
    }
    if (alternatives.length === 0) throw new Never();
    return alternatives;
  }

  #refusedPorts(
    side: "sport" | "dport",
    ranges: readonly PortRange[],
    setIds: readonly string[],
    family: Family | null,
  ): readonly string[] {
    const criteria = ranges.length === 0 ? [] : [`th ${side} != ${portsText(ranges)}`];
    for (const id of setIds) {
      const name = this.#portSet(id, family);
      if (name !== null) criteria.push(`${addressField(family, side)} . meta l4proto . th ${side} != @${name}`);
    }
    return criteria;
  }

  #portSet(id: string, family: Family | null): string | null {
    const type = this.#around.typeOf(id);
    if (type === IpSetType.IP_AND_PORT && family !== null) return setName(id, type, family);
    this.#closeFor();
    return null;
  }

  #verdict(): readonly string[] {
    const { settings, isUntracked } = this.#around;
    switch (this.#action) {
      case "allow":
        return [
          ...(isUntracked ? ["notrack"] : []),
          `meta mark set meta mark or ${hex(settings.marks.accept)}`,
          "return",
        ];
      case "pass":
        return [`meta mark set meta mark or ${hex(settings.marks.pass)}`, "return"];
      case "deny":
        return [dropOf(settings)];
      case "log":
        return [`log prefix ${logPrefix(`${this.#rule.logPrefix || "calico-packet"}: `)} level notice`];
    }
  }
}

function addressField(family: Family | null, side: "sport" | "dport"): string {
  return `${family === 6 ? "ip6" : "ip"} ${side === "sport" ? "saddr" : "daddr"}`;
}

function listText(items: readonly string[]): string {
  return items.length === 1 ? (items[0] as string) : `{ ${items.join(", ")} }`;
}

/** Merges overlapping ranges, which nft rejects. */
function portsText(ranges: readonly PortRange[]): string {
  const merged: { first: number; last: number }[] = [];
  for (const { first, last } of ranges.toSorted((a, b) => a.first - b.first)) {
    if (first < 0 || last > 65_535 || first > last) throw new Unrenderable(`invalid ports ${first}-${last}`);
    const before = merged.at(-1);
    if (before !== undefined && first <= before.last + 1) before.last = Math.max(before.last, last);
    else merged.push({ first, last });
  }
  return listText(merged.map(({ first, last }) => (first === last ? `${first}` : `${first}-${last}`)));
}

function byte(value: number): number {
  if (!Number.isInteger(value) || value < 0 || value > 255) throw new Unrenderable(`invalid ICMP number ${value}`);
  return value;
}

function icmpText({ type, code }: IcmpTypeAndCode): readonly [number, number] {
  return [byte(type), byte(code)];
}
