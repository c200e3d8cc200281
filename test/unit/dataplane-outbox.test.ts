// Messages to a driver, and their order, while the wanted state keeps changing and the driver reads at its own pace.
import test from "ava";
import { fc } from "../support/dataplane.ts";
import { Outbox } from "../../machines/dataplane/outbox.ts";
import { updateOf } from "../../machines/dataplane/generation.ts";
import type { DataplaneDelta } from "../../machines/dataplane/objects.ts";
import { Policy, PolicyID, PortRange, Rule, TierInfo } from "../../proto/gen/felix.ts";
import { tierEntries } from "../../proto/tier-policies.ts";
import { ModelDriver } from "../../simulation/nodes/dataplane-model.ts";
import { arbitraryDelta, endpointOf, policyOf, setOf } from "../support/dataplane.ts";

function drain(outbox: Outbox, driver: ModelDriver, limit = Infinity): void {
  for (let count = 0; count < limit; count++) {
    const body = outbox.next();
    if (body === null) return;
    driver.take(body);
  }
}

test("O1 O2 O3: in any mix of changes and messages, the driver ends in the wanted state, in the protocol's order", (t) => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.array(arbitraryDelta, { maxLength: 6 }), fc.nat({ max: 5 }), fc.boolean()), {
        maxLength: 30,
      }),
      (steps) => {
        const outbox = new Outbox("current");
        const wanted = new ModelDriver();
        let driver = new ModelDriver();
        outbox.resync();
        for (const [deltas, takes, isRestart] of steps) {
          for (const delta of deltas) {
            outbox.apply(delta);
            wanted.want(delta);
          }
          if (isRestart && takes === 0) {
            driver = new ModelDriver();
            outbox.resync();
          }
          drain(outbox, driver, takes);
        }
        drain(outbox, driver);
        t.deepEqual(driver.picture(), wanted.picture());
        t.is(driver.inSyncs, 1);
        t.deepEqual(driver.problems, []);
        t.is(outbox.size, 0);
      },
    ),
    { numRuns: 300, seed: 7 },
  );
});

const put = (object: Extract<DataplaneDelta, { kind: "put" }>["object"]): DataplaneDelta => ({ kind: "put", object });

test("an object that comes and goes before the driver reads is not sent at all", (t) => {
  const outbox = new Outbox("current");
  outbox.resync();
  const driver = new ModelDriver();
  drain(outbox, driver);
  outbox.apply(put(setOf("s1", ["10.0.0.1"])));
  outbox.apply(put(policyOf("p1", ["s1"])));
  outbox.apply({ kind: "removed", ref: policyOf("p1", []) });
  outbox.apply({ kind: "removed", ref: { kind: "ip-set", id: "s1" } });
  outbox.apply({ kind: "removed", ref: { kind: "ip-set", id: "never" } });
  t.is(outbox.size, 0);
  t.is(outbox.next(), null);
});

test("a thousand changes of one set wait as one message, and one with more changes than members as the whole set", (t) => {
  const outbox = new Outbox("current");
  outbox.resync();
  outbox.apply(put(setOf("s1", ["10.0.0.1", "10.0.0.2", "10.0.0.3"])));
  drain(outbox, new ModelDriver());
  for (let step = 0; step < 1_000; step++) {
    outbox.apply({
      kind: "members",
      id: "s1",
      added: [`10.1.0.${step % 250}`],
      removed: [`10.1.0.${(step + 249) % 250}`],
    });
    t.is(outbox.size, 1);
  }
  t.deepEqual(outbox.next()?.ipsetDeltaUpdate?.addedMembers, ["10.1.0.249"]);
  outbox.apply({ kind: "members", id: "s1", added: [], removed: ["10.1.0.249", "10.0.0.1", "10.0.0.2"] });
  t.deepEqual(outbox.next()?.ipsetUpdate?.members, ["10.0.0.3"]);
});

test("G1: drivers of 2016 get a rule for each network, one list of policies, and nothing that opens more", (t) => {
  const rules = (fields: Partial<Rule>): readonly Rule[] => {
    const policy = Policy.create({ inboundRules: [Rule.create(fields)] });
    const object = { kind: "policy", id: PolicyID.create({ tier: "default", name: "p" }), policy } as const;
    return updateOf(object, "2016")?.activePolicyUpdate?.policy?.inboundRules ?? [];
  };
  t.deepEqual(
    rules({ srcNet: ["10.0.0.0/8", "11.0.0.0/8"], dstNet: ["12.0.0.0/8", "13.0.0.0/8"] }).map((rule) => [
      ...rule.srcNet,
      ...rule.dstNet,
    ]),
    [
      ["10.0.0.0/8", "12.0.0.0/8"],
      ["10.0.0.0/8", "13.0.0.0/8"],
      ["11.0.0.0/8", "12.0.0.0/8"],
      ["11.0.0.0/8", "13.0.0.0/8"],
    ],
  );
  t.is(rules({ action: "pass" })[0]?.action, "next-tier");
  const ports = [PortRange.create({ first: 80, last: 80 })];
  for (const fields of [
    { dstNamedPortIpSetIds: ["n"], dstPorts: ports },
    { dstIpPortSetIds: ["n"] },
    { notSrcNet: ["10.0.0.0/8", "11.0.0.0/8"] },
  ]) {
    t.deepEqual(rules({ action: "allow", ...fields }), []);
    for (const action of ["deny", "pass"]) {
      const [rule] = rules({ action, ...fields });
      t.is(rule?.action, "deny");
      t.deepEqual(rule?.dstPorts, [], "a drop for one of the ports is a drop for all");
    }
  }
  const tiers = [
    TierInfo.create({
      name: "default",
      ingressPolicies: tierEntries(["a", "b"]),
      egressPolicies: tierEntries(["b", "c"]),
    }),
  ];
  const endpoint = updateOf(endpointOf("w", tiers), "2016")?.workloadEndpointUpdate?.endpoint;
  t.deepEqual(endpoint?.tiers[0]?.ingressPolicies, tierEntries(["a", "b", "c"]));
  t.deepEqual(endpoint?.tiers[0]?.egressPolicies, []);
  t.is(updateOf({ ...setOf("n", ["10.0.0.0/8"]), type: 2 }, "2016"), null);
});
