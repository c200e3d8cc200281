/**
 * The chains that packets enter by themselves. They do the same however many endpoints there are: each looks up its
 * interface in a map.
 *
 * B1: an interface whose name has the workload prefix and that no endpoint has is closed.
 * B2: packets of interfaces that are nobody's endpoint are not touched.
 */
import type { FailsafePort, Settings } from "./config.ts";
import { anyInterface, discoveryTypes, failsafeChain, hostChain, otherSourceLines } from "./endpoint.ts";
import { marksOf } from "./evaluation.ts";
import {
  droppedChain,
  otherSourceChain,
  OutputBuilder,
  workloadInterfaces,
  type HostMap,
  type Output,
} from "./output.ts";
import { dropOf } from "./rule.ts";

/** What the base needs to know of the rest. */
export interface BaseFacts {
  /** What host endpoints ask for: hooks that none needs are left out, and cost packets nothing. */
  readonly hostMaps: ReadonlySet<HostMap>;
  /** The chains of the host endpoint for all interfaces, by the map that would lead there. */
  readonly anyInterfaceMaps: ReadonlySet<HostMap>;
  /** Names of the sets of pools, in both families; null: nothing is masqueraded. */
  readonly pools: { readonly masqueraded: readonly [string, string]; readonly all: readonly [string, string] } | null;
  /** The set of the nodes that may send IP-in-IP; null: it is not in use. */
  readonly nodes: string | null;
}

const hook = (type: string, at: string, priority: number): string =>
  `type ${type} hook ${at} priority ${priority}; policy accept;`;

export function renderBase(settings: Settings, facts: BaseFacts): Output {
  const output = new OutputBuilder();
  const marks = marksOf(settings);
  const drop = dropOf(settings);
  const each = (field: string, rest: string): readonly string[] =>
    settings.interfacePrefixes.map((prefix) => `${field} "${prefix}*" ${rest}`);
  const has = (map: HostMap): boolean => facts.hostMaps.has(map);
  const toHosts = (map: HostMap, field: string): readonly string[] => [
    ...(has(map) ? [`${field} vmap @${map}`] : []),
    ...(facts.anyInterfaceMaps.has(map) ? [`${field} != "lo" goto ${hostChain(map, anyInterface)}`] : []),
  ];
  // Workloads have no part in host endpoints, not even in the one for all interfaces.
  const leaveWorkloads = (field: string): readonly string[] => [
    `${field} @${workloadInterfaces} return`,
    ...each(field, "return"),
  ];
  const isEarly = has("untracked-from-host") || has("pre-dnat");
  const accepted = `${marks.isAccepted} return`;

  output.chain(droppedChain, [drop]);
  output.element("tracked", "established", "return");
  output.element("tracked", "related", "return");
  output.element("tracked", "invalid", `goto ${droppedChain}`);
  output.chain(
    "base-raw-prerouting",
    [
      // Marks that others left on a packet must not count as ours.
      ...(isEarly ? [marks.clear] : []),
      "iifname . ip saddr @workload-sources-4 return",
      "iifname . ip6 saddr @workload-sources-6 return",
      "iifname vmap @workload-source",
      ...(has("untracked-from-host")
        ? [...each("iifname", "return"), ...toHosts("untracked-from-host", "iifname")]
        : []),
    ],
    hook("filter", "prerouting", -300),
  );
  output.chain(otherSourceChain, otherSourceLines(settings));
  if (has("untracked-to-host"))
    output.chain(
      "base-raw-output",
      [marks.clear, ...leaveWorkloads("oifname"), ...toHosts("untracked-to-host", "oifname")],
      hook("filter", "output", -300),
    );
  if (has("pre-dnat"))
    output.chain(
      "base-mangle-prerouting",
      [
        "ct state established,related return",
        accepted,
        ...leaveWorkloads("iifname"),
        ...toHosts("pre-dnat", "iifname"),
      ],
      hook("filter", "prerouting", -150),
    );
  output.chain(
    "base-input",
    [
      // Policies before tracking and before translation have the last word.
      ...(isEarly ? [accepted] : []),
      ...(facts.nodes === null ? [] : [`meta nfproto ipv4 meta l4proto 4 ip saddr != @${facts.nodes} ${drop}`]),
      `iifname @${workloadInterfaces} goto workload-to-host`,
      ...each("iifname", "goto workload-to-host"),
      ...toHosts("from-host", "iifname"),
    ],
    hook("filter", "input", 0),
  );
  output.chain(
    "base-forward",
    [
      ...(has("forward-from-host") ? ["jump dispatch-forward-from-host"] : []),
      "jump dispatch-from-workload",
      "jump dispatch-to-workload",
      ...(has("forward-to-host") ? ["jump dispatch-forward-to-host"] : []),
    ],
    hook("filter", "forward", 0),
  );
  if (has("to-host"))
    output.chain(
      "base-output",
      [...(has("untracked-to-host") ? [accepted] : []), ...leaveWorkloads("oifname"), ...toHosts("to-host", "oifname")],
      hook("filter", "output", 0),
    );
  if (has("forward-from-host"))
    output.chain("dispatch-forward-from-host", [
      ...leaveWorkloads("iifname"),
      ...toHosts("forward-from-host", "iifname"),
    ]);
  if (has("forward-to-host"))
    output.chain("dispatch-forward-to-host", [...leaveWorkloads("oifname"), ...toHosts("forward-to-host", "oifname")]);
  output.chain("dispatch-from-workload", ["iifname vmap @from-workload", ...each("iifname", drop)]); // B1
  output.chain("dispatch-to-workload", [
    "oifname . ip daddr vmap @to-workload-4",
    "oifname . ip6 daddr vmap @to-workload-6",
    "oifname vmap @to-workload",
    ...each("oifname", drop),
  ]);
  output.chain("workload-to-host", workloadToHost(settings, drop));
  output.chain(failsafeChain.in, failsafeLines(settings.failsafeIn, "saddr", marks.accept));
  output.chain(failsafeChain.out, failsafeLines(settings.failsafeOut, "daddr", marks.accept));
  if (facts.pools !== null) {
    const { masqueraded, all } = facts.pools;
    output.chain(
      "base-nat-postrouting",
      [
        `ip saddr @${masqueraded[0]} ip daddr != @${all[0]} masquerade`,
        `ip6 saddr @${masqueraded[1]} ip6 daddr != @${all[1]} masquerade`,
      ],
      hook("nat", "postrouting", 100),
    );
  }
  return output.build();
}

/** §11.3. An interface without an endpoint gets no further than discovery either way: its own chain is asked, or B1's drop. */
function workloadToHost(settings: Settings, drop: string): readonly string[] {
  const { metadata, endpointToHost } = settings;
  return [
    "ct state established,related return",
    `ct state invalid ${drop}`,
    `meta nfproto ipv6 icmpv6 type ${discoveryTypes} return`,
    `iifname != @${workloadInterfaces} ${drop}`,
    ...(metadata === null ? [] : [`ip daddr ${metadata.address} tcp dport ${metadata.port} return`]),
    "meta nfproto ipv4 udp sport 68 udp dport 67 return",
    "meta nfproto ipv6 udp sport 546 udp dport 547 return",
    // Over TCP as well: a reply that has no room in a packet is asked for so (RFC 7766).
    "meta l4proto { tcp, udp } th dport 53 return",
    ...(endpointToHost === "DROP"
      ? [drop]
      : ["jump dispatch-from-workload", endpointToHost === "ACCEPT" ? "accept" : "return"]),
  ];
}

function failsafeLines(ports: readonly FailsafePort[], peer: "saddr" | "daddr", accept: string): readonly string[] {
  return [
    // The failsafe ports of an IPv6 host can be reached only by who finds it.
    `meta nfproto ipv6 icmpv6 type { 133, 134, 135, 136 } ${accept} return`,
    ...ports.map(({ protocol, net, port }) => {
      const from = net === null ? "" : `${net.family === 4 ? "ip" : "ip6"} ${peer} ${net.text} `;
      return `${from}meta l4proto ${protocol} th dport ${port} ${accept} return`;
    }),
  ];
}
