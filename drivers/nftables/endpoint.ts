/**
 * Endpoints as chains (docs/reference/felix-dataplane-protocol.md §11.2-11.4).
 *
 * E1: a packet from or to an endpoint that nothing accepts is dropped; one with neither tiers nor profiles drops all.
 * E2: a workload sends from its own addresses and its own MAC only, and gets what is for its own addresses only; that is
 *     looked at before connection tracking, so that an address which is taken away takes its connections along.
 * E3: failsafe traffic of a host endpoint is accepted before any policy.
 */
import type { HostEndpoint, TierInfo, WorkloadEndpoint } from "../../proto/gen/felix.ts";
import { netText, outermost, parseNet, type Net } from "./addresses.ts";
import type { Settings } from "./config.ts";
import { nameOf } from "./names.ts";
import { OutputBuilder, type Output } from "./output.ts";
import { policyChain, profileChain, type Direction } from "./policy.ts";
import { dropOf, hex } from "./rule.ts";

/** The chains that hold the failsafe ports; part of the base. */
export const failsafeChain = { in: "failsafe-in", out: "failsafe-out" } as const;

/** The host endpoint that stands for all interfaces without one of their own. */
export const anyInterface = "*";

/** Neighbour and listener discovery: without these no address of a link can be used (ICMPv6 130-133, 135, 136; §11.3). */
export const discoveryTypes = "{ 130, 131, 132, 133, 135, 136 }";

/** Tests and changes of a packet's mark. */
export function marksOf({ marks }: Settings) {
  const both = marks.accept + marks.pass;
  return {
    clear: `meta mark set meta mark and ${hex(0xffffffff - both)}`,
    accept: `meta mark set meta mark or ${hex(marks.accept)}`,
    clearPass: `meta mark set meta mark and ${hex(0xffffffff - marks.pass)}`,
    isAccepted: `meta mark and ${hex(marks.accept)} == ${hex(marks.accept)}`,
    isNotPassed: `meta mark and ${hex(marks.pass)} == 0`,
  };
}

export function policyKey(tier: string, name: string): string {
  return `${tier}/${name}`;
}

interface Evaluation {
  readonly tiers: readonly TierInfo[];
  readonly direction: Direction;
  readonly profiles: readonly string[];
  /** What a tier's policies do not decide is dropped, and so is what nothing decides. */
  readonly drops: boolean;
}

function policiesOf(tier: TierInfo, direction: Direction, settings: Settings): readonly string[] {
  return direction === "in" || settings.hasOneTierList ? tier.ingressPolicies : tier.egressPolicies;
}

function hasPolicies(tiers: readonly TierInfo[], direction: Direction, settings: Settings): boolean {
  return tiers.some((tier) => policiesOf(tier, direction, settings).length > 0);
}

function evaluate(output: OutputBuilder, settings: Settings, evaluation: Evaluation): readonly string[] {
  const marks = marksOf(settings);
  const { direction, drops } = evaluation;
  const lines = [marks.clear];
  for (const tier of evaluation.tiers) {
    const policies = policiesOf(tier, direction, settings);
    if (policies.length === 0) continue;
    lines.push(marks.clearPass);
    for (const name of policies) {
      const key = policyKey(tier.name, name);
      output.usesPolicy(key);
      lines.push(`${marks.isNotPassed} jump ${policyChain(direction, key)}`, `${marks.isAccepted} return`);
    }
    if (drops && tier.defaultAction.toLowerCase() !== "pass") lines.push(`${marks.isNotPassed} ${dropOf(settings)}`);
  }
  for (const name of evaluation.profiles) {
    output.usesProfile(name);
    lines.push(`jump ${profileChain(direction, name)}`, `${marks.isAccepted} return`);
  }
  if (drops) lines.push(dropOf(settings)); // E1
  return lines;
}

/** Both families' addresses; null when one is not understood. */
function addressesOf(
  endpoint: WorkloadEndpoint,
  more: readonly string[],
): Readonly<Record<4 | 6, readonly string[]>> | null {
  const nets = [...endpoint.ipv4Nets, ...endpoint.ipv6Nets, ...more].map(parseNet);
  if (nets.includes(null)) return null;
  const texts = (family: 4 | 6): readonly string[] =>
    outermost((nets as readonly Net[]).filter((net) => net.family === family)).map(netText);
  return { 4: texts(4), 6: texts(6) };
}

const withLink = (texts: readonly string[]): readonly string[] =>
  outermost(["::", "fe80::/10", ...texts].map((text) => parseNet(text) as Net)).map(netText);

const notOneOf = (field: string, texts: readonly string[]): string => `${field} != { ${texts.join(", ")} }`;

export function renderWorkload(endpoint: WorkloadEndpoint, settings: Settings): Output {
  const output = new OutputBuilder();
  const { name } = endpoint;
  const drop = dropOf(settings);
  const marks = marksOf(settings);
  const chains = { source: nameOf("ws", name), from: nameOf("wf", name), to: nameOf("wt", name) };
  output.dispatch("workload-source", name, chains.source);
  output.dispatch("from-workload", name, chains.from);
  output.dispatch("to-workload", name, chains.to);
  output.dispatch("workload-interfaces", name, null);

  const own = addressesOf(endpoint, []);
  const sources = addressesOf(endpoint, endpoint.allowSpoofedSourcePrefixes);
  const hasMac = endpoint.mac !== "";
  const isMac = /^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/i.test(endpoint.mac);
  if (own === null || sources === null) output.problem("an address of the endpoint is not understood");
  if (hasMac && !isMac) output.problem("the endpoint's MAC address is not understood");
  const isOpen = endpoint.state === "active" && own !== null && sources !== null && (!hasMac || isMac);
  if (!isOpen) {
    for (const chain of [chains.source, chains.from, chains.to]) output.chain(chain, [drop]);
    return output.build();
  }
  const anySource = (texts: readonly string[]): boolean => texts.some((text) => text.endsWith("/0"));
  output.chain(chains.source, [
    ...(isMac ? [`ether saddr != ${endpoint.mac.toLowerCase()} ${drop}`] : []),
    "ip saddr 0.0.0.0 udp sport 68 udp dport 67 return",
    ...(anySource(sources[4])
      ? []
      : [sources[4].length === 0 ? `meta nfproto ipv4 ${drop}` : `${notOneOf("ip saddr", sources[4])} ${drop}`]),
    // Addresses of the link belong to everybody, and no router forwards them.
    ...(anySource(sources[6]) ? [] : [`${notOneOf("ip6 saddr", withLink(sources[6]))} ${drop}`]),
  ]); // E2
  const tracked = [`ct state established,related ${marks.accept} return`, `ct state invalid ${drop}`];
  const profiles = endpoint.profileIds;
  const { tiers } = endpoint;
  output.chain(chains.from, [
    ...tracked,
    ...evaluate(output, settings, { tiers, direction: "out", profiles, drops: true }),
  ]);
  output.chain(chains.to, [
    own[4].length === 0 ? `meta nfproto ipv4 ${drop}` : `${notOneOf("ip daddr", own[4])} ${drop}`,
    own[6].length === 0 ? `meta nfproto ipv6 ${drop}` : `${notOneOf("ip6 daddr", own[6])} ${drop}`,
    ...tracked,
    ...evaluate(output, settings, { tiers, direction: "in", profiles, drops: true }),
  ]);
  return output.build();
}

/** The chains of the host endpoint that stands for `interfaceName`, which may be `anyInterface`. */
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
  const add = (map: Parameters<OutputBuilder["dispatch"]>[0], lines: readonly string[]): void => {
    const chain = hostChain(map, interfaceName);
    output.chain(chain, lines);
    if (interfaceName !== anyInterface) output.dispatch(map, interfaceName, chain);
  };
  const profiles = endpoint.profileIds;
  for (const direction of ["in", "out"] as const) {
    const lines = evaluate(output, settings, { tiers: endpoint.tiers, direction, profiles, drops: true });
    // E3: before anything that can drop.
    add(direction === "in" ? "from-host" : "to-host", [...tracked, ...failsafe(direction), invalid, ...lines]);
    if (hasPolicies(endpoint.forwardTiers, direction, settings)) {
      const forward = evaluate(output, settings, {
        tiers: endpoint.forwardTiers,
        direction,
        profiles: [],
        drops: true,
      });
      // What passes through every tier is left to the host's own rules, unlike what ends at the host.
      add(direction === "in" ? "forward-from-host" : "forward-to-host", [...tracked, invalid, ...forward.slice(0, -1)]);
    }
    if (hasPolicies(endpoint.untrackedTiers, direction, settings)) {
      const untracked = evaluate(output, settings, {
        tiers: endpoint.untrackedTiers,
        direction,
        profiles: [],
        drops: false,
      });
      add(direction === "in" ? "untracked-from-host" : "untracked-to-host", [...failsafe(direction), ...untracked]);
    }
  }
  if (hasPolicies(endpoint.preDnatTiers, "in", settings)) {
    const lines = evaluate(output, settings, {
      tiers: endpoint.preDnatTiers,
      direction: "in",
      profiles: [],
      drops: false,
    });
    add("pre-dnat", [...failsafe("in"), ...lines]);
  }
}
