import test from "ava";
import { checkPolicyObject } from "../../machines/policy/check.ts";
import { calculateNode, type ClusterFacts } from "../../machines/policy/calculate.ts";
import { compilePolicy, netText } from "../../machines/policy/compile.ts";
import {
  evaluateEndpoint,
  evaluateHostEndpoint,
  type Direction,
  type HostStage,
  type Packet,
} from "../../machines/policy/evaluate.ts";
import { clusterFacts } from "../../machines/policy/calculate.ts";
import {
  DataplaneIcmp,
  DataplaneIcmpCode,
  HostEndpoint,
  NetworkPolicy,
  NetworkProfile,
  PolicyOrder,
  PolicyPeer,
  PolicyRule,
  Tier,
} from "../../proto/gen/messages.ts";
import { difference, isEmptyUpdate } from "../../machines/policy/node-state.ts";
import type { PolicyObject } from "../../machines/policy/objects.ts";
import { chosen, nodeOf, port, resourceOf, serviceOf, taskOf } from "../support/policies.ts";

function factsWith(...objects: readonly PolicyObject[]): ClusterFacts {
  return clusterFacts({
    managers: [],
    nodes: [nodeOf("n1", "n1", {}, "192.0.2.1")],
    services: [
      serviceOf("db", {}, [["sql", 5_432]], "10.0.9.9"),
      serviceOf("web"),
      serviceOf("named", { "muster.network.profiles": "strict" }),
    ],
    tasks: [
      taskOf("d", "db", "n1", ["10.0.0.1/24", "fd00::1/64"]),
      taskOf("w", "web", "n2", ["10.0.0.2/24", "fd00::2/64"]),
      taskOf("s", "named", "n1", ["10.0.0.3/24"]),
    ],
    resources: objects.map(resourceOf),
  });
}

const policy = (fields: Partial<NetworkPolicy>): PolicyObject => ({
  kind: "NetworkPolicy",
  object: NetworkPolicy.create({ name: "p", selector: "service == 'db'", appliesIngress: true, ...fields }),
});

const allow = (fields: Partial<PolicyRule> = {}): PolicyRule => PolicyRule.create({ action: "allow", ...fields });
const deny = (fields: Partial<PolicyRule> = {}): PolicyRule => PolicyRule.create({ action: "deny", ...fields });

const tcp = (destinationPort: number, source = "10.0.0.2", destination = "10.0.0.1"): Packet => ({
  source,
  destination,
  protocol: "tcp",
  sourcePort: 40_000,
  destinationPort,
});

function at(facts: ClusterFacts, packet: Packet, direction: Direction = "ingress", endpoint = "d/net") {
  const state = calculateNode(facts, "n1");
  const found = state.endpoints.get(endpoint);
  if (found === undefined) throw new Error(`no endpoint ${endpoint}`);
  return evaluateEndpoint(state, found, direction, packet);
}

test("without policies the built-in profile allows everything, and a service's own profiles replace it", (t) => {
  const facts = factsWith();
  t.deepEqual(at(facts, tcp(80)), { allowed: true, by: { kind: "profile", name: "muster.allow", rule: 0 } });
  t.deepEqual(at(facts, tcp(80), "ingress", "s/net"), {
    allowed: false,
    by: { kind: "missing", what: "profile", name: "strict" },
  });
  const own: PolicyObject = {
    kind: "NetworkProfile",
    object: NetworkProfile.create({ name: "default", ingress: [deny({ protocol: "udp" }), allow()] }),
  };
  t.deepEqual(at(factsWith(own), tcp(80)).by, { kind: "profile", name: "default", rule: 1 });
  t.false(at(factsWith(own), tcp(80), "egress").allowed);
});

test("an endpoint selected in a direction drops there what no rule allows, and only there", (t) => {
  const facts = factsWith(
    policy({ ingress: [allow({ protocol: "tcp", destination: PolicyPeer.create({ ports: [port(80)] }) })] }),
  );
  t.deepEqual(at(facts, tcp(80)).by, { kind: "policy", tier: "default", name: "p", rule: 0 });
  t.deepEqual(at(facts, tcp(81)), { allowed: false, by: { kind: "tier", tier: "default" } });
  t.true(at(facts, tcp(81), "egress").allowed);
  t.true(at(facts, tcp(81), "ingress", "s/net").by.kind === "missing");
});

test("a selector that matches nothing changes nothing, and one that matches everything closes tasks and host endpoints alike", (t) => {
  const host: PolicyObject = {
    kind: "HostEndpoint",
    object: HostEndpoint.create({ name: "h", node: "n1", interface: "eth0" }),
  };
  const stateWith = (selector: string) =>
    calculateNode(
      factsWith(host, policy({ selector, appliesEgress: true, ingress: [deny()], egress: [deny()] })),
      "n1",
    );
  const before = calculateNode(factsWith(host), "n1");
  t.true(isEmptyUpdate(difference(before, stateWith("service == 'nobody'"))));
  t.true(isEmptyUpdate(difference(before, stateWith("!all()"))));
  for (const everything of ["", "all()", "service == 'db' || !has(stack)"]) {
    const state = stateWith(everything);
    t.true(state.endpoints.size > 1);
    for (const { id, tiers } of [...state.endpoints.values(), ...state.hostEndpoints.values()])
      t.deepEqual(
        tiers.map(({ ingress, egress }) => [ingress, egress]),
        [[["p"], ["p"]]],
        `${everything}: ${id}`,
      );
  }
});

test("policies apply in order, and a tier passes on where it says so", (t) => {
  const first = policy({ name: "late", ingress: [deny()] });
  const second = policy({
    name: "early",
    order: PolicyOrder.create({ value: 5 }),
    ingress: [PolicyRule.create({ action: "log" }), allow()],
  });
  t.deepEqual(at(factsWith(first, second), tcp(1)).by, { kind: "policy", tier: "default", name: "early", rule: 1 });
  const tier: PolicyObject = {
    kind: "Tier",
    object: Tier.create({ name: "front", order: PolicyOrder.create({ value: 1 }) }),
  };
  const front = policy({
    name: "gate",
    tier: "front",
    ingress: [PolicyRule.create({ action: "pass", protocol: "tcp" })],
  });
  t.deepEqual(at(factsWith(first, front, tier), tcp(1)).by, { kind: "policy", tier: "default", name: "late", rule: 0 });
  t.deepEqual(at(factsWith(first, front, tier), { ...tcp(1), protocol: "udp" }).by, { kind: "tier", tier: "front" });
});

const criteria: readonly (readonly [string, Partial<PolicyRule>, Packet, boolean])[] = [
  ["selector", { source: PolicyPeer.create({ selector: chosen("service == 'web'") }) }, tcp(1), true],
  ["selector, another", { source: PolicyPeer.create({ selector: chosen("service == 'db'") }) }, tcp(1), false],
  ["notSelector", { source: PolicyPeer.create({ notSelector: chosen("service == 'web'") }) }, tcp(1), false],
  ["nets, v6", { source: PolicyPeer.create({ nets: ["fd00::/16"] }) }, tcp(1, "fd00::2", "fd00::1"), true],
  ["nets, the other family", { source: PolicyPeer.create({ nets: ["fd00::/16"] }) }, tcp(1), false],
  ["notNets, the other family", { source: PolicyPeer.create({ notNets: ["fd00::/16"] }) }, tcp(1), false],
  ["notNets", { source: PolicyPeer.create({ notNets: ["10.0.0.0/30"] }) }, tcp(1), false],
  ["a range", { protocol: "tcp", destination: PolicyPeer.create({ ports: [port(10, 20)] }) }, tcp(20), true],
  ["outside of it", { protocol: "tcp", destination: PolicyPeer.create({ ports: [port(10, 20)] }) }, tcp(21), false],
  ["notPorts", { protocol: "tcp", destination: PolicyPeer.create({ notPorts: [port(80)] }) }, tcp(80), false],
  ["a named port", { protocol: "tcp", destination: PolicyPeer.create({ namedPorts: ["sql"] }) }, tcp(5_432), true],
  ["another port", { protocol: "tcp", destination: PolicyPeer.create({ namedPorts: ["sql"] }) }, tcp(80), false],
  [
    "a port or a name",
    { protocol: "tcp", destination: PolicyPeer.create({ ports: [port(80)], namedPorts: ["sql"] }) },
    tcp(80),
    true,
  ],
  [
    "a service's location",
    { destination: PolicyPeer.create({ services: chosen("service == 'db'") }) },
    tcp(5_432),
    true,
  ],
  ["not its port", { destination: PolicyPeer.create({ services: chosen("service == 'db'") }) }, tcp(80), false],
  [
    "its own address",
    { destination: PolicyPeer.create({ services: chosen("service == 'db'") }) },
    tcp(5_432, "10.0.0.2", "10.0.9.9"),
    true,
  ],
  ["a protocol by number", { protocol: "6" }, tcp(1), true],
  ["notProtocol", { notProtocol: "tcp" }, tcp(1), false],
  ["ip version", { ipVersion: 6 }, tcp(1), false],
  [
    "icmp",
    { protocol: "icmp", icmp: DataplaneIcmp.create({ type: 8 }) },
    { source: "10.0.0.2", destination: "10.0.0.1", protocol: "icmp", icmpType: 8, icmpCode: 0 },
    true,
  ],
  [
    "icmp type 0",
    { protocol: "icmp", icmp: DataplaneIcmp.create({ type: 0 }) },
    { source: "10.0.0.2", destination: "10.0.0.1", protocol: "icmp", icmpType: 8, icmpCode: 0 },
    false,
  ],
  [
    "icmp code",
    { protocol: "icmp", icmp: DataplaneIcmp.create({ type: 3, code: DataplaneIcmpCode.create({ code: 1 }) }) },
    { source: "10.0.0.2", destination: "10.0.0.1", protocol: "icmp", icmpType: 3, icmpCode: 2 },
    false,
  ],
  [
    "not icmp",
    { protocol: "icmp", notIcmp: DataplaneIcmp.create({ type: 8 }) },
    { source: "10.0.0.2", destination: "10.0.0.1", protocol: "icmp", icmpType: 0, icmpCode: 0 },
    true,
  ],
];

test("each criterion of a rule has its documented meaning", (t) => {
  for (const [name, fields, packet, expected] of criteria) {
    const object = policy({ ingress: [allow(fields)] });
    t.is(checkPolicyObject(object), null, name);
    t.is(at(factsWith(object), packet).allowed, expected, name);
  }
});

test("a host endpoint drops what nothing allows, except failsafe ports, and has its stages", (t) => {
  const host: PolicyObject = {
    kind: "HostEndpoint",
    object: HostEndpoint.create({ name: "h", node: "n1", interface: "eth0" }),
  };
  const raw = policy({
    name: "raw",
    selector: "node == 'n1' && !has(service)",
    doNotTrack: true,
    applyOnForward: true,
    appliesEgress: true,
    ingress: [deny({ protocol: "udp" })],
  });
  const before = policy({
    name: "pre",
    selector: "node == 'n1'",
    preDnat: true,
    applyOnForward: true,
    ingress: [deny({ protocol: "sctp" })],
  });
  const state = calculateNode(factsWith(host, raw, before), "n1");
  const endpoint = state.hostEndpoints.get("h");
  if (endpoint === undefined) return t.fail();
  const ask = (stage: HostStage, protocol: string, destinationPort: number, direction: Direction = "ingress") =>
    evaluateHostEndpoint(state, endpoint, direction, stage, { ...tcp(destinationPort), protocol });
  t.deepEqual(ask("normal", "tcp", 22), { allowed: true, by: { kind: "failsafe", port: "tcp:22" } });
  t.false(ask("normal", "tcp", 80).allowed);
  t.true(ask("forward", "tcp", 80).allowed);
  t.deepEqual(ask("untracked", "udp", 1).by, { kind: "policy", tier: "default", name: "raw", rule: 0 });
  t.deepEqual(ask("untracked", "tcp", 1), { allowed: true, by: { kind: "nothing" } });
  t.false(ask("pre-dnat", "sctp", 1).allowed);
  t.true(ask("pre-dnat", "sctp", 1, "egress").allowed);
  t.true(ask("normal", "udp", 53, "egress").allowed);
  // Tasks have only the normal stage.
  t.deepEqual(state.endpoints.get("d/net")?.tiers, []);
  return undefined;
});

test("C1: an invalid stored policy denies for the endpoints it selects, and selects none if its selector is invalid", (t) => {
  const wrong = NetworkPolicy.create({
    name: "x",
    selector: "service == 'db'",
    appliesIngress: true,
    ingress: [allow({ protocol: "nonsense" })],
  });
  t.false(at(factsWith({ kind: "NetworkPolicy", object: wrong }), tcp(1)).allowed);
  t.false(at(factsWith({ kind: "NetworkPolicy", object: wrong }), tcp(1), "egress").allowed);
  t.is(compilePolicy(NetworkPolicy.patch(wrong, { selector: "service = " })), null);
});

test("nets have one notation", (t) => {
  t.is(netText("10.1.2.3/8"), "10.0.0.0/8");
  t.is(netText("10.1.2.3"), "10.1.2.3/32");
  t.is(netText("FD00:0::1"), "fd00::1/128");
});

test("equal rules have distinct ids, and a rule keeps its id when another one is inserted before it", (t) => {
  const ids = (...rules: PolicyRule[]): (string | undefined)[] =>
    compilePolicy(NetworkPolicy.create({ name: "x", appliesIngress: true, ingress: rules }))?.message.ingress.map(
      ({ id }) => id,
    ) ?? [];
  const [first, second] = ids(allow(), allow());
  t.not(first, second);
  t.is(ids(deny(), allow())[1], first);
});
