/**
 * The base chains, which packets enter through hooks. They are the same for any number of endpoints: each chain looks up its
 * interface in a map.
 *
 * B1: an interface with the workload prefix but without an endpoint is closed.
 * B2: packets of interfaces without an endpoint or the prefix are not touched.
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

/** The facts that the base chains depend on. */
interface BaseFacts {
  /** The maps that host endpoints need: hooks without any are omitted, and cost packets nothing. */
  readonly hostMaps: ReadonlySet<HostMap>;
  /** The chains of the host endpoint for all interfaces, by the map that leads to them. */
  readonly anyInterfaceMaps: ReadonlySet<HostMap>;
  /** Names of the pools' sets, for both families; null: no masquerading. */
  readonly pools: { readonly masqueraded: readonly [string, string]; readonly all: readonly [string, string] } | null;
  /** The set of nodes that may send IP-in-IP; null: not in use. */
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
  // Host endpoints do not apply to workloads, not even the one for all interfaces.
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
      // Marks that others set on a packet must not count as ours.
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
      // Policies before connection tracking and before NAT are final.
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

/** §11.3. Without an endpoint, an interface gets no further than discovery either way: its own chain decides, or B1's drop. */
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
    // TCP as well: a resolver retries over TCP after a truncated reply (RFC 7766).
    "meta l4proto { tcp, udp } th dport 53 return",
    ...(endpointToHost === "DROP"
      ? [drop]
      : ["jump dispatch-from-workload", endpointToHost === "ACCEPT" ? "accept" : "return"]),
  ];
}

function failsafeLines(ports: readonly FailsafePort[], peer: "saddr" | "daddr", accept: string): readonly string[] {
  return [
    // An IPv6 host is reachable on its failsafe ports only if neighbor discovery works.
    `meta nfproto ipv6 icmpv6 type { 133, 134, 135, 136 } ${accept} return`,
    ...ports.map(({ protocol, net, port }) => {
      const from = net === null ? "" : `${net.family === 4 ? "ip" : "ip6"} ${peer} ${net.text} `;
      return `${from}meta l4proto ${protocol} th dport ${port} ${accept} return`;
    }),
  ];
}
