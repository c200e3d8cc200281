// A node's state as transactions, without a kernel: what grows with endpoints and what does not.
import test from "ava";
import { readSettings } from "../../drivers/nftables/config.ts";
import { Desired } from "../../drivers/nftables/desired.ts";
import { Ruleset } from "../../drivers/nftables/ruleset.ts";
import { ToDataplane, WorkloadEndpointRemove, type WorkloadEndpoint } from "../../proto/gen/felix.ts";
import { allow, body, tier, type Body } from "../fixtures/dataplane-main.ts";

function node() {
  const desired = new Desired(readSettings({}).settings);
  const ruleset = new Ruleset(desired);
  /** The lines of the resulting transaction. */
  const take = (...bodies: readonly Body[]): readonly string[] => {
    for (const each of bodies) desired.take(ToDataplane.create(each));
    return (ruleset.next(null)?.script ?? "").split("\n").filter((line) => line !== "");
  };
  return { ruleset, take };
}

const endpoint = (index: number, fields: Partial<WorkloadEndpoint> = {}): Body =>
  body.workload(`w${index}`, {
    name: `cali${index}`,
    ipv4Nets: [`10.${index >> 8}.${index & 255}.1/32`],
    ipv6Nets: [`fd00::${index.toString(16)}/128`],
    profileIds: ["open"],
    tiers: [tier("default", `p${index % 3}`)],
    ...fields,
  });
const removal = (index: number): Body => ({
  workloadEndpointRemove: WorkloadEndpointRemove.create({ id: endpoint(index).workloadEndpointUpdate?.id ?? null }),
});
const many = (count: number): readonly Body[] => [
  ...[0, 1, 2].map((index) => body.policy(`p${index}`, { inboundRules: [allow], outboundRules: [allow] })),
  body.profile("open", [allow]),
  ...Array.from({ length: count }, (_, index) => endpoint(index)),
];
const withWord = (lines: readonly string[], word: RegExp): readonly string[] => lines.filter((line) => word.test(line));

test("R2: chains, rules and sets of a node do not grow with its endpoints, and neither does a change", (t) => {
  const [few, lots] = [node(), node()];
  const isStructure = /^add (table|chain|map|set|rule) /;
  const structure = withWord(few.take(...many(10)), isStructure);
  t.deepEqual(withWord(lots.take(...many(1_000)), isStructure).toSorted(), structure.toSorted());
  // Nor does any set of a single rule, whose elements nft would read before each change.
  t.false(structure.some((line) => /[sd]addr (!= )?\{/.test(line)));
  for (const change of [
    endpoint(2_000),
    endpoint(3, { tiers: [tier("default", "p2")] }),
    removal(4),
    body.policy("p1", { inboundRules: [] }),
  ]) {
    const lines = lots.take(change);
    t.deepEqual(lines, few.take(change));
    t.true(lines.length < 20, lines.join("\n"));
    t.deepEqual(withWord(lines, / (add|delete) (chain|set|map) /), []);
  }
});

test("policies and profiles appear with their first endpoint, and go with the last", (t) => {
  const { take } = node();
  take(...many(3));
  const tiers = [tier("default", "p0", "p1")];
  t.is(withWord(take(endpoint(10, { tiers })), /^add chain /).length, 2);
  t.is(withWord(take(endpoint(11, { tiers })), /chain/).length, 0);
  t.is(withWord(take(removal(10)), /chain/).length, 0);
  t.is(withWord(take(removal(11)), /^delete chain /).length, 2);
});

test("an endpoint with unusual networks or a MAC gets chains of its own; a closed one gets none", (t) => {
  const { take } = node();
  take(...many(3));
  t.is(withWord(take(endpoint(10, { mac: "02:00:00:00:00:01" })), /^add chain /).length, 1);
  t.is(withWord(take(endpoint(11, { ipv4Nets: ["10.9.0.0/24"] })), /^add chain /).length, 2);
  const closed = take(endpoint(12, { state: "inactive" }));
  t.is(withWord(closed, /^add element .* : goto dropped }$/).length, 3);
  t.is(withWord(closed, /^add (chain|rule) /).length, 0);
});

test("hooks exist only while a host endpoint needs them", (t) => {
  const { ruleset, take } = node();
  const hooks = (lines: readonly string[]): readonly string[] =>
    withWord(lines, /^add chain .* hook /).map((line) => line.split(" ")[4] ?? "");
  t.deepEqual(hooks(take(...many(1))).toSorted(), ["base-forward", "base-input", "base-raw-prerouting"]);
  ruleset.resolveHosts(new Map([["eth0", "h"]]));
  const preDnatTiers = [tier("default", "p0")];
  t.deepEqual(hooks(take(body.host("h", { name: "eth0", preDnatTiers }))).toSorted(), [
    "base-mangle-prerouting",
    "base-output",
  ]);
  ruleset.resolveHosts(new Map());
  const gone = withWord(take(), /^delete chain .* base-/).map((line) => line.split(" ")[4] ?? "");
  t.deepEqual(gone.toSorted(), ["base-mangle-prerouting", "base-output"]);
});

test("R4: a rewrite reuses existing objects; unwanted ones are removed, whoever created them", (t) => {
  const { ruleset, take } = node();
  const first = take(...many(2));
  t.deepEqual(first.slice(0, 3), [
    "add table inet muster-policy",
    "delete table inet muster-policy",
    "add table inet muster-policy",
  ]);
  const chains = withWord(first, /^add chain /).map((line): [string, string | null] => {
    const [, name = "", hook] = /^add chain inet \S+ (\S+)(?: \{ (.*) \})?$/.exec(line) ?? [];
    return [name, hook ?? null];
  });
  const sets = withWord(first, /^add (set|map) /).map((line): [string, "set" | "map"] => {
    const [, kind, , , name = ""] = line.split(" ");
    return [name, kind === "map" ? "map" : "set"];
  });
  ruleset.distrust();
  const hooked = "type filter hook input priority 5; policy accept;";
  const found = {
    chains: new Map(
      [...chains, ["old", null] as const, ["base-forward", hooked] as const].map(([name, hook]) => [
        name,
        { hook, rules: 1 },
      ]),
    ),
    sets: new Map([...sets, ["old-set", "set"] as const, ["old-map", "map"] as const]),
  };
  const again = ruleset.next(found);
  const lines = again?.script.split("\n") ?? [];
  t.deepEqual(
    withWord(lines, /^delete /).toSorted(),
    [
      "delete chain inet muster-policy base-forward",
      "delete chain inet muster-policy old",
      "delete map inet muster-policy old-map",
      "delete set inet muster-policy old-set",
    ],
    "unwanted objects, and a chain with another hook",
  );
  t.is(withWord(lines, /^flush chain /).length, found.chains.size);
  t.is(withWord(lines, /^flush (set|map) /).length, found.sets.size);
  t.deepEqual(
    withWord(lines, /^add (chain|rule|set|map|element) /),
    withWord(first, /^add (chain|rule|set|map|element) /),
  );
  t.true(again?.restsOnKernel);
});
