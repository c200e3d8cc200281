// Generations of Felix's protocol that differ where unknown fields do not help, against codecs generated from their wire
// tables:
// messages of a main of 3.32 reach our driver, and those of our main reach a driver of 3.32 or of 2016.
import test from "ava";
import { readSettings } from "../../drivers/nftables/config.ts";
import { Desired } from "../../drivers/nftables/desired.ts";
import { Ruleset } from "../../drivers/nftables/ruleset.ts";
import { Statuses } from "../../drivers/nftables/statuses.ts";
import { removalOf, settingsOf, updateOf, type Body } from "../../machines/dataplane/generation.ts";
import { FromDataplane, Policy, PolicyID, TierInfo, ToDataplane } from "../../proto/gen/felix.ts";
import { tierEntries } from "../../proto/tier-policies.ts";
import { allow, body } from "../fixtures/dataplane-main.ts";
import { felix332 } from "../fixtures/felix-wire.ts";
import { endpointOf } from "../support/dataplane.ts";

const wire = felix332();

/** The longest name that Kubernetes allows: its length takes two bytes, which are not valid text. */
const longName = "n".repeat(253);
const web = { name: longName, namespace: "shop", kind: "NetworkPolicy" };
const everywhere = { name: "every", kind: "GlobalNetworkPolicy" };
const allowRule = { inbound_rules: [{ action: "allow" }], outbound_rules: [{ action: "allow" }] };

function node() {
  const desired = new Desired(readSettings({}).settings);
  const ruleset = new Ruleset(desired);
  const take = (...messages: readonly object[]): string => {
    for (const message of messages) desired.take(ToDataplane.decode(wire.encode("ToDataplane", message)));
    return ruleset.next(null)?.script ?? "";
  };
  const problem = (): string | null => ruleset.problemAt({ kind: "workload", key: "cali1" });
  return { take, problem };
}

const workload = (...policies: readonly object[]): object => ({
  workload_endpoint_update: {
    id: { orchestrator_id: "k8s", workload_id: "w", endpoint_id: "eth0" },
    endpoint: {
      state: "active",
      name: "cali1",
      ipv4_nets: ["10.0.0.1/32"],
      tiers: [{ name: "default", ingress_policies: policies, egress_policies: policies, default_action: "Deny" }],
    },
  },
});

test("a main of 3.32 names the policies of a tier by messages, and defines and removes them by the same", (t) => {
  const { take, problem } = node();
  const script = take(
    { active_policy_update: { id: web, policy: { ...allowRule, tier: "default" } } },
    { active_policy_update: { id: everywhere, policy: { ...allowRule, tier: "default" } } },
    workload(web, everywhere),
  );
  t.is(problem(), null);
  // Both policies have their rules in both directions, and none drops for lack of a definition.
  t.is(script.match(/^add rule .* pi-\S+ .*return$/gm)?.length, 2, script);
  take({ active_policy_remove: { id: web } });
  t.regex(problem() ?? "", new RegExp(`has not described policy NetworkPolicy shop/${longName}$`));
  take(workload(everywhere));
  t.is(problem(), null);
});

test("policies of 3.32 that differ only in kind or namespace are distinct", (t) => {
  const { take, problem } = node();
  take(
    { active_policy_update: { id: { ...web, name: "p" }, policy: allowRule } },
    workload({ ...web, name: "p", namespace: "other" }),
  );
  t.regex(problem() ?? "", /has not described policy NetworkPolicy other\/p$/);
  take(workload({ ...web, name: "p", kind: "KubernetesNetworkPolicy" }));
  t.regex(problem() ?? "", /has not described policy KubernetesNetworkPolicy shop\/p$/);
});

test("staged policies decide nothing, in either generation's notation", (t) => {
  const { take, problem } = node();
  take(workload({ name: "p", kind: "StagedGlobalNetworkPolicy" }));
  t.is(problem(), null);
  const before332 = new Desired(readSettings({}).settings);
  const ruleset = new Ruleset(before332);
  const tiers = [TierInfo.create({ name: "default", ingressPolicies: tierEntries(["staged:p", "shop/staged:q"]) })];
  before332.take(ToDataplane.create(body.workload("w", { name: "cali1", ipv4Nets: ["10.0.0.1/32"], tiers })));
  ruleset.next(null);
  t.is(ruleset.problemAt({ kind: "workload", key: "cali1" }), null);
});

test("an endpoint with an undefined or unreadable policy has a problem and is closed", (t) => {
  const { take, problem } = node();
  take(workload(web));
  t.regex(problem() ?? "", /main has not described/);
  const desired = new Desired(readSettings({}).settings);
  const ruleset = new Ruleset(desired);
  // Field 2 with a length beyond the end: neither a name of 3.31 nor a message.
  const tiers = [TierInfo.create({ name: "default", ingressPolicies: [Uint8Array.of(0x12, 0x7f)] })];
  desired.take(ToDataplane.create(body.workload("w", { name: "cali1", ipv4Nets: ["10.0.0.1/32"], tiers })));
  ruleset.next(null);
  t.regex(ruleset.problemAt({ kind: "workload", key: "cali1" }) ?? "", /cannot read/);
});

test("a status has the endpoint as main described it, including fields of later versions", (t) => {
  const described = wire.encode("ToDataplane", {
    workload_endpoint_update: {
      id: { orchestrator_id: "k8s", workload_id: "w", endpoint_id: "eth0" },
      endpoint: {
        state: "active",
        name: "cali1",
        ipv4_nets: ["10.0.0.1/32"],
        tiers: [{ name: "default", ingress_policies: [web] }],
        annotations: { a: "b" },
      },
    },
  });
  const desired = new Desired(readSettings({}).settings);
  desired.take(ToDataplane.decode(described));
  const sent: Uint8Array[] = [];
  const statuses = new Statuses((fields) => sent.push(FromDataplane.encode(FromDataplane.create(fields))));
  const known = desired.workloadAt("cali1");
  if (known === null) return t.fail();
  statuses.tell({ kind: "workload", key: "w", ...known }, "up");
  const said = wire.decode("FromDataplane", sent[0] as Uint8Array)["workload_endpoint_status_update"];
  t.deepEqual(said, {
    id: { orchestrator_id: "k8s", workload_id: "w", endpoint_id: "eth0" },
    status: { status: "up" },
    endpoint: {
      state: "active",
      name: "cali1",
      ipv4_nets: ["10.0.0.1/32"],
      tiers: [{ name: "default", ingress_policies: [web] }],
      annotations: { a: "b" },
    },
  });
});

const id = (tier: string, name: string): PolicyID => PolicyID.create({ tier, name });
const heardBy332 = (told: Body | null): Record<string, unknown> =>
  wire.decode("ToDataplane", ToDataplane.encode(ToDataplane.create(told ?? {})));

test("drivers of 3.32 get policies as its messages, each with the same id everywhere", (t) => {
  const policy = Policy.create({ inboundRules: [allow] });
  const tiers = [
    TierInfo.create({ name: "edge", ingressPolicies: tierEntries(["p"]), egressPolicies: tierEntries(["q"]) }),
  ];
  const told = { name: "edge/p", kind: "GlobalNetworkPolicy" };
  t.deepEqual(heardBy332(updateOf({ kind: "policy", id: id("edge", "p"), policy }, "3.32")), {
    active_policy_update: { id: told, policy: { inbound_rules: [{ action: "allow" }], tier: "edge" } },
  });
  t.deepEqual(heardBy332(removalOf({ kind: "policy", id: id("edge", "p") }, "3.32")), {
    active_policy_remove: { id: told },
  });
  t.like(heardBy332(updateOf(endpointOf("w", tiers), "3.32")), {
    workload_endpoint_update: {
      endpoint: {
        tiers: [
          {
            name: "edge",
            ingress_policies: [told],
            egress_policies: [{ name: "edge/q", kind: "GlobalNetworkPolicy" }],
          },
        ],
      },
    },
  });
});

test("a policy that moves to another tier is another one for a driver of 3.32: removing the one leaves the other", (t) => {
  const ids = [id("a", "b.c"), id("a.b", "c"), id("b", "c")].map((each) =>
    JSON.stringify(heardBy332(removalOf({ kind: "policy", id: each }, "3.32"))),
  );
  t.is(new Set(ids).size, 3);
});

test("G2: drivers of 2016 get failsafe ports as bare TCP ports, in whatever case the setting is", (t) => {
  const settings = {
    InterfacePrefix: "mst",
    FailsafeInboundHostPorts: "tcp:22,udp:68, tcp:2377,4000,tcp:10.0.0.0/8:99",
    failsafeoutboundhostports: "udp:53",
  };
  t.deepEqual(settingsOf(settings, "2016"), {
    InterfacePrefix: "mst",
    FailsafeInboundHostPorts: "22,2377,4000",
    failsafeoutboundhostports: "none",
  });
  t.is(settingsOf(settings, "current"), settings);
  t.is(settingsOf(settings, "3.32"), settings);
});
