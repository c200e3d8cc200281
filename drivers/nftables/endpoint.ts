/**
 * Endpoints (docs/reference/felix-dataplane-protocol.md §11.2-11.4): workloads are elements of maps and sets that lead to
 * shared chains, host endpoints have their own chains. For the decisions of tiers and profiles see evaluation.ts, E1.
 *
 * E2: a workload sends only from its own addresses and its own MAC, and receives only packets for its own addresses. This is
 *     checked before connection tracking, so that removing an address also ends its connections.
 * E3: failsafe traffic of a host endpoint is accepted before any policy.
 */
import type { HostEndpoint, WorkloadEndpoint } from "../../proto/gen/felix.ts";
import type { Prefix } from "../../lib/ip-address.ts";
import { netText, outermost, parseNet } from "./addresses.ts";
import type { Settings } from "./config.ts";
import { evaluate, evaluationChain, evaluationKey, marksOf, tiersOf } from "./evaluation.ts";
import {
  type Evaluation,
  droppedChain,
  otherSourceChain,
  OutputBuilder,
  workloadInterfaces,
  type HostMap,
  type Output,
  type Direction,
} from "./output.ts";
import { families } from "./ip-set.ts";
import { nameOf } from "./names.ts";
import { dropOf } from "./rule.ts";

/** The chains with the failsafe ports; part of the base. */
export const failsafeChain = { in: "failsafe-in", out: "failsafe-out" } as const;

/** The host endpoint for all interfaces without one of their own. */
export const anyInterface = "*";

/** Link-local addresses: every interface has one, and no router forwards them. */
const linkPrefix = "fe80::/10";

const dhcpRequest = "ip saddr 0.0.0.0 udp sport 68 udp dport 67 return";

/** Neighbor and listener discovery: without it no link-local address works (ICMPv6 130-133, 135, 136; §11.3). */
export const discoveryTypes = "{ 130, 131, 132, 133, 135, 136 }";

/** The addresses of both families; null if one is invalid. */
function addressesOf(
  endpoint: WorkloadEndpoint,
  more: readonly string[],
): Readonly<Record<4 | 6, readonly string[]>> | null {
  const nets = [...endpoint.ipv4Nets, ...endpoint.ipv6Nets, ...more].map(parseNet);
  if (nets.includes(null)) return null;
  const texts = (family: 4 | 6): readonly string[] =>
    outermost((nets as readonly Prefix[]).filter((net) => net.family === family)).map(netText);
  return { 4: texts(4), 6: texts(6) };
}

const notOneOf = (field: string, texts: readonly string[]): string => `${field} != { ${texts.join(", ")} }`;

const withLink = (texts: readonly string[]): readonly string[] =>
  outermost(["::", linkPrefix, ...texts].map((text) => parseNet(text) as Prefix)).map(netText);

export function renderWorkload(endpoint: WorkloadEndpoint, settings: Settings): Output {
  const output = new OutputBuilder();
  const at = `"${endpoint.name}"`;
  output.element(workloadInterfaces, at, null);
  const own = addressesOf(endpoint, []);
  const sources = addressesOf(endpoint, endpoint.allowSpoofedSourcePrefixes);
  const isMac = /^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/i.test(endpoint.mac);
  const isMacWrong = endpoint.mac !== "" && !isMac;
  if (own === null || sources === null) output.problem("the endpoint has an invalid address");
  if (isMacWrong) output.problem("the endpoint has an invalid MAC address");
  if (endpoint.state !== "active" || own === null || sources === null || isMacWrong) {
    for (const map of ["workload-source", "from-workload", "to-workload"] as const)
      output.element(map, at, `goto ${droppedChain}`);
    return output.build();
  }
  const { from, to } = evaluationsOf(output, endpoint, settings);
  output.element("from-workload", at, `goto ${from}`);
  // E2. Single addresses are elements; networks and MACs need rules of the endpoint's own.
  if (!isMac && hasSinglesOnly(sources)) {
    for (const family of families)
      for (const text of sources[family]) output.element(`workload-sources-${family}`, `${at} . ${text}`, null);
    output.element("workload-source", at, `goto ${otherSourceChain}`);
  } else {
    const chain = nameOf("ws", endpoint.name);
    output.chain(chain, sourceLines(sources, isMac ? endpoint.mac.toLowerCase() : null, settings));
    output.element("workload-source", at, `goto ${chain}`);
  }
  if (hasSinglesOnly(own)) {
    for (const family of families)
      for (const text of own[family]) output.element(`to-workload-${family}`, `${at} . ${text}`, `goto ${to}`);
    output.element("to-workload", at, `goto ${droppedChain}`);
  } else {
    const chain = nameOf("wt", endpoint.name);
    output.chain(chain, [
      ...(own[4].length === 0 ? [] : [`ip daddr { ${own[4].join(", ")} } goto ${to}`]),
      ...(own[6].length === 0 ? [] : [`ip6 daddr { ${own[6].join(", ")} } goto ${to}`]),
      dropOf(settings),
    ]);
    output.element("to-workload", at, `goto ${chain}`);
  }
  return output.build();
}

const hasSinglesOnly = (texts: Readonly<Record<4 | 6, readonly string[]>>): boolean =>
  families.every((family) => texts[family].every((text) => !text.includes("/")));

/** The chains that decide about its packets, shared by all workloads with the same tiers and profiles. */
function evaluationsOf(
  output: OutputBuilder,
  endpoint: WorkloadEndpoint,
  settings: Settings,
): { readonly from: string; readonly to: string } {
  const chainOf = (direction: Direction): string => {
    const tiers = tiersOf(endpoint.tiers, direction, settings);
    const evaluation = { direction, tiers, profiles: endpoint.profileIds, drops: true };
    const key = evaluationKey(evaluation);
    output.usesEvaluation(key, evaluation);
    for (const { policies } of tiers) for (const policy of policies) output.usesPolicy(policy);
    for (const profile of endpoint.profileIds) output.usesProfile(profile);
    return evaluationChain(key);
  };
  return { from: chainOf("out"), to: chainOf("in") };
}

/** Source checks of a workload with networks or a MAC. Packets that pass them continue. */
function sourceLines(
  sources: Readonly<Record<4 | 6, readonly string[]>>,
  mac: string | null,
  settings: Settings,
): readonly string[] {
  const drop = dropOf(settings);
  const isAny = (texts: readonly string[]): boolean => texts.some((text) => text.endsWith("/0"));
  return [
    ...(mac === null ? [] : [`ether saddr != ${mac} ${drop}`]),
    dhcpRequest,
    ...(isAny(sources[4])
      ? []
      : [sources[4].length === 0 ? `meta nfproto ipv4 ${drop}` : `${notOneOf("ip saddr", sources[4])} ${drop}`]),
    ...(isAny(sources[6]) ? [] : [`${notOneOf("ip6 saddr", withLink(sources[6]))} ${drop}`]),
  ];
}

/** For packets whose source is not an address of the workload: DHCP, duplicate address detection and link-local traffic. */
export function otherSourceLines(settings: Settings): readonly string[] {
  return [dhcpRequest, "ip6 saddr :: return", `ip6 saddr ${linkPrefix} return`, dropOf(settings)];
}

/** The chain of the host endpoint of `interfaceName`, which may be `anyInterface`. */
export function hostChain(kind: string, interfaceName: string): string {
  return nameOf(kind, interfaceName);
}

export function renderHost(
  endpoint: HostEndpoint,
  interfaceName: string,
  settings: Settings,
  output: OutputBuilder,
): void {
  const marks = marksOf(settings);
  const tracked = [`ct state established,related ${marks.accept} return`];
  const invalid = `ct state invalid ${dropOf(settings)}`;
  const failsafe = (direction: Direction): readonly string[] => [
    `jump ${failsafeChain[direction]}`,
    `${marks.isAccepted} return`,
  ];
  const add = (map: HostMap, lines: readonly string[]): void => {
    const chain = hostChain(map, interfaceName);
    output.chain(chain, lines);
    if (interfaceName !== anyInterface) output.element(map, `"${interfaceName}"`, `goto ${chain}`);
  };
  const decide = (
    tiers: Evaluation["tiers"],
    direction: Direction,
    profiles: readonly string[] | null,
  ): readonly string[] =>
    evaluate(output, settings, { direction, tiers, profiles: profiles ?? [], drops: profiles !== null });
  for (const direction of ["in", "out"] as const) {
    const tiers = tiersOf(endpoint.tiers, direction, settings);
    const lines = decide(tiers, direction, endpoint.profileIds);
    // E3: before any rule that can drop.
    add(direction === "in" ? "from-host" : "to-host", [...tracked, ...failsafe(direction), invalid, ...lines]);
    const forward = tiersOf(endpoint.forwardTiers, direction, settings);
    // Packets that pass through every tier are left to the host's own rules, unlike those that end at the host.
    if (forward.length > 0)
      add(direction === "in" ? "forward-from-host" : "forward-to-host", [
        ...tracked,
        invalid,
        ...decide(forward, direction, null),
      ]);
    const untracked = tiersOf(endpoint.untrackedTiers, direction, settings, false);
    if (untracked.length > 0)
      add(direction === "in" ? "untracked-from-host" : "untracked-to-host", [
        ...failsafe(direction),
        ...decide(untracked, direction, null),
      ]);
  }
  const preDnat = tiersOf(endpoint.preDnatTiers, "in", settings, false);
  if (preDnat.length > 0) add("pre-dnat", [...failsafe("in"), ...decide(preDnat, "in", null)]);
}
