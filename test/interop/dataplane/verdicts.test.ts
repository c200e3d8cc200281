// For random policies, the kernel's verdict on real packets equals that of a small evaluator that shares no code with the
// driver.
import anyTest from "ava";
import * as fc from "fast-check";
import { IPVersion, PortRange, Rule, TierInfo } from "../../../proto/gen/felix.ts";
import { tierEntries } from "../../../proto/tier-policies.ts";
import { body, protocol, ScriptedMain } from "../../fixtures/dataplane-main.ts";
import { addresses, canMakeNetworks, PacketLab, type Wish } from "../../fixtures/packet-lab.ts";
import { isAllowed, type Packet, type PolicyWorld, type Side } from "../../support/policy-evaluator.ts";

const test = canMakeNetworks() ? anyTest.serial : anyTest.serial.skip;

const { a, b } = addresses;
const policyNames = ["p0", "p1", "p2", "p3"];
const setMembers = ["10.65.0.2", "10.65.0.3", "fd65::2", "fd65::3"];

const range = fc
  .constantFrom([80, 80], [81, 8_080], [1, 65_535], [30_000, 39_999])
  .map(([first, last]) => PortRange.create({ first, last }));
const rarely = <T>(value: fc.Arbitrary<T>, otherwise: T): fc.Arbitrary<T> =>
  fc.oneof({ weight: 12, arbitrary: fc.constant(otherwise) }, { weight: 1, arbitrary: value });
const list = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<readonly T[]> =>
  rarely(fc.array(value, { minLength: 1, maxLength: 2 }), []);
const net = fc.constantFrom(
  "10.0.0.0/8",
  "10.65.0.2/32",
  "10.65.0.3/32",
  "10.66.0.0/16",
  "fd65::/16",
  "fd65::2/128",
  "fd66::/16",
);
const setId = fc.constantFrom("s0", "s1", "s2");
const ported = fc.constantFrom("tcp", "udp").map(protocol);

const rule: fc.Arbitrary<Rule> = fc
  .record({
    action: fc.constantFrom("allow", "allow", "allow", "allow", "allow", "", "deny", "pass", "log"),
    ipVersion: rarely(fc.constantFrom(IPVersion.IPV4, IPVersion.IPV6), IPVersion.ANY),
    protocol: rarely(fc.constantFrom("tcp", "udp", "icmp", "icmpv6").map(protocol), null as never),
    notProtocol: rarely(fc.constantFrom("tcp", "udp").map(protocol), null as never),
    srcNet: list(net),
    dstNet: list(net),
    notSrcNet: list(net),
    notDstNet: list(net),
    srcIpSetIds: list(setId),
    dstIpSetIds: list(setId),
    notSrcIpSetIds: list(setId),
    notDstIpSetIds: list(setId),
    ports: rarely(
      fc.record({
        protocol: ported,
        dstPorts: list(range),
        srcPorts: list(range),
        notDstPorts: list(range),
        notSrcPorts: list(range),
      }),
      null as never,
    ),
  })
  .map(({ ports, ...rest }) => Rule.create(ports === null ? rest : { ...rest, ...ports }));

/** Every other list finally allows undecided packets: otherwise almost nothing would pass. */
const ruleList = fc
  .tuple(fc.array(rule, { maxLength: 3 }), fc.boolean())
  .map(([list, isOpen]) => (isOpen ? [...list, Rule.create({ action: "allow" })] : list));
const rules = fc.record({ inbound: ruleList, outbound: ruleList });
const tier = fc
  .record({
    name: fc.constant("default"),
    ingressPolicies: fc.uniqueArray(fc.constantFrom(...policyNames, "missing"), { maxLength: 2 }).map(tierEntries),
    egressPolicies: fc.uniqueArray(fc.constantFrom(...policyNames), { maxLength: 2 }).map(tierEntries),
  })
  .map((fields) => TierInfo.create(fields));
const side: fc.Arbitrary<Side> = fc.record({
  tiers: fc.array(tier, { maxLength: 2 }),
  profiles: fc.uniqueArray(fc.constantFrom("f0", "f1"), { minLength: 1, maxLength: 2 }),
});
const world: fc.Arbitrary<{ readonly world: PolicyWorld; readonly from: Side; readonly to: Side }> = fc.record({
  world: fc
    .tuple(
      fc.array(rules, { minLength: 4, maxLength: 4 }),
      fc.array(rules, { minLength: 2, maxLength: 2 }),
      fc.array(fc.subarray(setMembers), { minLength: 3, maxLength: 3 }),
    )
    .map(([policies, profiles, sets]) => ({
      policies: new Map(policies.map((each, index) => [`p${index}`, each])),
      profiles: new Map(profiles.map((each, index) => [`f${index}`, each])),
      sets: new Map(sets.map((each, index) => [`s${index}`, each])),
    })),
  from: side,
  to: side,
});

test("for random policies, the kernel allows what a plain evaluation allows, and nothing else", async (t) => {
  const lab = new PacketLab();
  t.teardown(() => lab.end());
  for (const port of [80, 81]) {
    await lab.b.listen("tcp", port);
    await lab.b.listen("udp", port);
  }
  const main = new ScriptedMain(`${lab.prefix}r`);
  t.teardown(() => main.end());
  main.send(body.config(), body.inSync);
  await main.settled();
  let sport = 30_000;
  let allowed = 0;
  let total = 0;
  for (const sample of fc.sample(world, { numRuns: 20, seed: 20_261_121 })) {
    const { policies, profiles, sets } = sample.world;
    for (const [id, members] of sets) main.send(body.set(id, members));
    for (const [name, { inbound, outbound }] of policies)
      main.send(body.policy(name, { inboundRules: inbound, outboundRules: outbound }));
    for (const [name, { inbound, outbound }] of profiles) main.send(body.profile(name, inbound, outbound));
    for (const [name, { tiers, profiles: profileIds }] of [
      ["a", sample.from],
      ["b", sample.to],
    ] as const) {
      const { v4, v6 } = addresses[name];
      main.send(
        body.workload(name, {
          name: `cali${name}`,
          ipv4Nets: [`${v4}/32`],
          ipv6Nets: [`${v6}/128`],
          tiers,
          profileIds,
        }),
      );
    }
    await main.settled();
    const packets: Packet[] = [];
    for (const [src, dst] of [
      [a.v4, b.v4],
      [a.v6, b.v6],
    ] as const) {
      for (const port of [80, 81])
        for (const kind of ["tcp", "udp"] as const) packets.push({ protocol: kind, src, dst, port, sport: sport++ });
      packets.push({ protocol: "icmp", src, dst, port: 0, sport: 0 });
    }
    const wishes = packets.map(({ protocol: kind, dst, port, sport: from }): Wish =>
      kind === "icmp" ? { protocol: kind, dst } : { protocol: kind, dst, port, sport: from },
    );
    const answers = await lab.a.probe(wishes, 120);
    for (const [index, packet] of packets.entries()) {
      const expected = isAllowed(sample.world, sample.from, sample.to, packet);
      total += 1;
      if (expected) allowed += 1;
      const shown = (): string =>
        `${JSON.stringify(packet)} ${JSON.stringify({ ...sample, world: { policies: [...policies], profiles: [...profiles], sets: [...sets] } })}`;
      if (answers[index] !== expected) t.fail(`${expected ? "should" : "should not"} pass: ${shown()}`);
    }
  }
  t.true(allowed > total / 10 && allowed < (total * 9) / 10, `${allowed} of ${total} should pass`);
});
