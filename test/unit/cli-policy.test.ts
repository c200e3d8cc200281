import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { readPolicies } from "../../cli/policy/file.ts";
import { UserError } from "../../lib/user-error.ts";
import { DataplaneReport, Any, Annotations, Manager, Resource } from "../../proto/gen/messages.ts";
import { nodeOf, serviceOf, taskOf } from "../support/policies.ts";
import { served } from "../support/served.ts";

const policies = `
apiVersion: muster/v1
kind: Tier
metadata: { name: front }
spec: { order: 10, defaultAction: Pass }
---
kind: NetworkPolicy
metadata: { name: db }
spec:
  tier: front
  order: 1.5
  selector: service == 'db'
  types: [Ingress, Egress]
  ingress:
    - action: Allow
      protocol: TCP
      source: { selector: "service == 'web'", notNets: [10.0.0.77] }
      destination: { ports: [5432, "8000:8100", sql] }
    - action: deny
      protocol: icmp
      icmp: { type: 8, code: 0 }
  egress: []
`;

function written(t: ExecutionContext, text: string): string {
  const folder = mkdtempSync(join(tmpdir(), "muster-policy-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, "p.yaml");
  writeFileSync(file, text);
  return file;
}

test("objects are read from the documents of a file", (t) => {
  const [tier, policy] = readPolicies(policies, "p.yaml").map(({ of }) => of);
  t.like(tier, { kind: "Tier", object: { name: "front", defaultAction: "pass" } });
  if (policy?.kind !== "NetworkPolicy") return t.fail();
  t.like(policy.object, { tier: "front", appliesIngress: true, appliesEgress: true, order: { value: 1.5 } });
  const [rule, ping] = policy.object.ingress;
  t.like(rule, { action: "allow", protocol: "tcp" });
  t.deepEqual(
    rule?.destination?.ports.map(({ first, last }) => [first, last]),
    [
      [5_432, 5_432],
      [8_000, 8_100],
    ],
  );
  t.deepEqual(rule?.destination?.namedPorts, ["sql"]);
  t.like(ping, { action: "deny", icmp: { type: 8, code: { code: 0 } } });
  return undefined;
});

const head = "kind: NetworkPolicy\nmetadata: { name: a }\nspec:\n";
const wrong: readonly (readonly [string, string])[] = [
  ["kind: Policy", "p.yaml:1: kind must be one of Tier, NetworkProfile, HostEndpoint, NetworkPolicy, not 'Policy'"],
  ["kind: Tier\nmetadata: { name: '-a' }\nspec: {}", "p.yaml:2: metadata.name must be 1 to 63 letters"],
  [`${head}  selektor: all()`, "p.yaml:4: spec.selektor is unknown: expected one of tier, order"],
  [`${head}  selector: a = 'b'`, "p.yaml:4: spec.selector is invalid: expected =="],
  [`${head}  order: high`, "p.yaml:4: spec.order must be a number"],
  [`${head}  types: [Sideways]`, "p.yaml:4: spec.types[0] must be ingress or egress, not 'sideways'"],
  [`${head}  ingress:\n    - action: permit`, "p.yaml:5: spec.ingress[0].action must be allow, deny, pass or log"],
  [
    `${head}  ingress:\n    - action: allow\n      source:\n        nets:\n          - 10.0.0.0/8\n          - 10.0.0.0/33`,
    "p.yaml:9: spec.ingress[0].source.nets[1] must be an IP address or a CIDR, not '10.0.0.0/33'",
  ],
  [
    `${head}  ingress:\n    - action: allow\n      protocol: tcp\n      destination:\n        ports: [70000]`,
    "p.yaml:8: spec.ingress[0].destination.ports[0] must be 0 to 65535, not '70000'",
  ],
  [
    `${head}  ingress:\n    - { action: allow, protocol: tcp, destination: { ports: ['90:80'] } }`,
    "p.yaml:5: spec.ingress[0].destination.ports[0] must not start above its end: '90:80'",
  ],
  [
    `${head}  ingress:\n    - { action: allow, destination: { ports: [80] } }`,
    "p.yaml:5: spec.ingress[0].destination.ports need protocol: tcp, udp, sctp or udplite",
  ],
  [
    `${head}  ingress:\n    - { action: allow, source: { nets: [10.0.0.1] }, destination: { nets: ['fd00::/8'] } }`,
    "p.yaml:5: spec.ingress[0] can never match: it requires both IPv4 and IPv6",
  ],
  [`${head}  ingress:\n    - { action: allow, protocol: tcp, icmp: { type: 8 } }`, "needs protocol: icmp or icmpv6"],
  [`${head}  preDNAT: true\n  applyOnForward: true\n  egress: []`, "p.yaml:3: spec.types must be only ingress"],
  [`${head}  doNotTrack: true`, "p.yaml:4: spec.doNotTrack needs applyOnForward: true"],
  [`kind: HostEndpoint\nmetadata: { name: h }\nspec: { node: n1 }`, "must have an interface or expectedAddresses"],
  [
    `${head}  order: 1\n---\n${head}  order: 2`,
    "p.yaml:7: metadata.name is a duplicate: line 2 also defines NetworkPolicy a",
  ],
  [`${head}  - 1`, "p.yaml:4: spec must be a mapping"],
];

test("an invalid policy is rejected with file, line and key", (t) => {
  for (const [text, message] of wrong) {
    const error = t.throws(() => readPolicies(text, "p.yaml"), { instanceOf: UserError }, text);
    t.true(error.message.includes(message), `${error.message}\n  wanted: ${message}`);
  }
});

async function lab(t: ExecutionContext) {
  const all = await served(t);
  const { seed } = all.manager;
  seed("manager", Manager.create({ id: "m1", addr: "192.0.2.10:2377", alive: true }));
  seed("node", nodeOf("m1", "m1", {}, "192.0.2.10"), nodeOf("n2", "n2", {}, "192.0.2.20"));
  seed("service", serviceOf("web"), serviceOf("db", {}, [["sql", 5_432]]));
  seed("task", taskOf("webtask1", "web", "n2", ["10.0.0.2/24"]), taskOf("dbtask1", "db", "m1", ["10.0.0.1/24"]));
  return all;
}

test("policies are applied, listed, shown, explained and removed", async (t) => {
  const { muster } = await lab(t);
  const file = written(t, policies);
  const explained = async (...args: string[]) => (await muster("policy", "explain", ...args)).lines;
  t.true((await explained("web", "db", "tcp/9"))[0]?.endsWith(": allowed"));

  const missing = await muster("policy", "apply", "-f", written(t, policies.split("---\n")[1] as string));
  t.is(missing.status, 1);
  t.true(
    missing.remarks[0]?.includes("p.yaml:4: spec.tier refers to a tier that does not exist: front"),
    missing.remarks[0],
  );

  t.deepEqual((await muster("policy", "apply", "-f", file)).lines, ["Tier/front created", "NetworkPolicy/db created"]);
  t.deepEqual((await muster("policy", "apply", "-f", file)).lines, [
    "Tier/front unchanged",
    "NetworkPolicy/db unchanged",
  ]);
  const completed = async (...words: string[]) => (await muster("completion", "words", "--", ...words)).lines;
  t.deepEqual(await completed("policy", "inspect", "d"), ["db"]);
  t.deepEqual(await completed("policy", "rm", "db", "T"), ["Tier/front"]);
  const { lines } = await muster("policy", "ls");
  t.deepEqual(
    lines.map((line) => line.split(/ {3,}/).map((each) => each.trim())),
    [
      ["NAME", "TIER", "ORDER", "CHOOSES", "RULES"],
      ["Tier/front", "front", "10", "pass"],
      ["NetworkPolicy/db", "front", "1.5", "service == 'db'", "2 in, 0 out"],
    ],
  );
  const [shown] = JSON.parse((await muster("policy", "inspect", "db")).lines.join("\n"));
  t.like(shown, { Kind: "NetworkPolicy", Name: "db", ActiveOn: ["m1"] });

  t.deepEqual(await explained("web", "db", "tcp/5432"), [
    "web.1 (10.0.0.2) to db.1 (10.0.0.1), tcp/5432: allowed",
    "  leaving web.1 on n2: allowed by profile muster.allow, egress rule 1",
    "  entering db.1 on m1: allowed by policy front/db, ingress rule 1",
    "  policies are not enforced on n2: it has no dataplane driver",
    "  policies are not enforced on m1: it has no dataplane driver",
  ]);
  t.is(
    (await explained("10.0.0.99", "db", "icmp/8/0"))[0],
    "outside (10.0.0.99) to db.1 (10.0.0.1), icmp/8/0: refused",
  );
  t.is(
    (await explained("10.0.0.99", "db", "icmp/8/0"))[1],
    "  entering db.1 on m1: refused by policy front/db, ingress rule 2",
  );
  // The tier passes on what none of its policies decides.
  t.is(
    (await explained("10.0.0.99", "db", "udp/53"))[1],
    "  entering db.1 on m1: allowed by profile muster.allow, ingress rule 1",
  );
  t.is((await muster("policy", "explain", "web", "db", "tcp")).status, 125);
  t.regex((await muster("policy", "explain", "nobody", "db", "tcp/1")).remarks[0] ?? "", /no such task, service, node/);

  t.regex((await muster("policy", "rm", "Tier/front")).remarks[0] ?? "", /tier front still has policies: db/);
  t.deepEqual((await muster("policy", "rm", "db", "front")).lines, ["db", "front"]);
  t.is((await muster("policy", "ls")).lines.length, 1);
  t.regex((await muster("policy", "rm", "db")).remarks[0] ?? "", /policy db not found/);
});

test("a policy that names an unpublished port causes a warning, which explain repeats", async (t) => {
  const { muster } = await lab(t);
  const naming = (port: string): string => `
kind: NetworkPolicy
metadata: { name: db }
spec:
  selector: service == 'db'
  types: [ingress, egress]
  ingress:
    - { action: allow, protocol: icmp }
    - { action: allow, protocol: tcp, destination: { ports: [${port}] } }
  egress:
    - { action: allow, protocol: udp, destination: { selector: "service == 'db'", ports: [sql] } }
`;
  const applied = await muster("policy", "apply", "-f", written(t, naming("sqk")));
  t.is(applied.status, 0);
  t.deepEqual(applied.lines, ["NetworkPolicy/db created"]);
  t.deepEqual(applied.remarks, [
    "warning: policy db, ingress rule 2 names the port sqk, and no service publishes a TCP port of that name: the rule matches nothing until one does",
    "warning: policy db, egress rule 1 names the port sql, and no service that its selector chooses publishes a UDP port of that name: the rule matches nothing until one does",
  ]);
  const explained = await muster("policy", "explain", "web", "db", "tcp/5432");
  t.true(explained.lines[0]?.endsWith(": refused"));
  t.is(
    explained.lines[3],
    "  policy db, ingress rule 2 names the port sqk, and no service publishes a TCP port of that name: the rule matches nothing until one does",
  );
  t.false(
    explained.lines.some((line) => line.includes("policy db, egress")),
    "it does not concern traffic that leaves web",
  );
  const right = await muster("policy", "apply", "-f", written(t, naming("sql").replace("udp", "tcp")));
  t.deepEqual(right.remarks, []);
  t.true((await muster("policy", "explain", "web", "db", "tcp/5432")).lines[0]?.endsWith(": allowed"));
  t.is(
    (await muster("policy", "explain", "web", "db", "tcp/5432")).lines.filter((line) => /names the port/.test(line))
      .length,
    0,
  );
});

const cutting = `
kind: HostEndpoint
metadata: { name: m1-all }
spec: { node: m1, interface: "*" }
---
kind: NetworkPolicy
metadata: { name: closed }
spec: { selector: "node == 'm1'", ingress: [{ action: deny }] }
`;

test("a policy that would cut a manager off is rejected without --force, and the failsafe ports stay open with it", async (t) => {
  const { muster } = await lab(t);
  const file = written(t, cutting);
  const refused = await muster("policy", "apply", "-f", file);
  t.is(refused.status, 1);
  t.regex(
    refused.remarks[0] ?? "",
    /manager1 could not reach the manager m1 at 192\.0\.2\.10:2377: host endpoint m1-all of m1 denies it; nothing was changed/,
  );
  t.is((await muster("policy", "ls")).lines.length, 1);
  t.is((await muster("policy", "apply", "--force", "-f", file)).status, 0);
  const { lines } = await muster("policy", "explain", "n2", "m1", "tcp/2377");
  t.is(lines[0], "n2 (192.0.2.20) to m1 (192.0.2.10), tcp/2377: allowed");
  t.is(lines[1], "  entering m1's host endpoint m1-all on m1: allowed by the failsafe port tcp:2377");
  t.regex((await muster("policy", "explain", "n2", "m1", "tcp/80")).lines[0] ?? "", /refused$/);
});

test("a manager known by a hostname is checked at the name's addresses, and at any address if it does not resolve", async (t) => {
  const all = await lab(t);
  const letting = (net: string): string => `${cutting}---
kind: NetworkPolicy
metadata: { name: managers }
spec:
  order: 1
  selector: node == 'm1'
  types: [ingress, egress]
  ingress: [{ action: allow, protocol: tcp, destination: { nets: [${net}], ports: [2377] } }]
  egress: [{ action: allow }]
`;
  const applied = (text: string) => all.muster("policy", "apply", "-f", written(t, text));
  const named = { id: "m1", addr: "m1.example:2377", alive: true };
  all.manager.seed("manager", Manager.create({ ...named, addresses: ["192.0.2.10", "2001:db8::10"] }));
  t.regex((await applied(cutting)).remarks[0] ?? "", /manager m1 at m1\.example:2377 \(192\.0\.2\.10\): host endpoint/);
  t.regex((await applied(letting("192.0.2.10"))).remarks[0] ?? "", /m1\.example:2377 \(2001:db8::10\): host endpoint/);
  t.is((await applied(letting("192.0.2.0/24, 2001:db8::/64"))).status, 0);
  t.is((await all.muster("policy", "rm", "managers", "closed", "HostEndpoint/m1-all", "--force")).status, 0);
  // Its address as others see it is better than nothing.
  all.manager.seed("manager", Manager.create(named));
  t.regex((await applied(cutting)).remarks[0] ?? "", /m1\.example:2377 \(192\.0\.2\.10\): host endpoint/);
  all.manager.seed("node", nodeOf("m1", "m1", {}, ""));
  t.regex((await applied(cutting)).remarks[0] ?? "", /m1\.example:2377 \(203\.0\.113\.1\): host endpoint/);
});

test("a host endpoint whose policy lets nodes in is accepted", async (t) => {
  const { muster } = await lab(t);
  const file = written(
    t,
    `${cutting}---
kind: NetworkPolicy
metadata: { name: managers }
spec:
  order: 1
  selector: node == 'm1'
  types: [ingress, egress]
  ingress: [{ action: allow, protocol: tcp, destination: { ports: [2377] } }]
  egress: [{ action: allow }]
`,
  );
  t.deepEqual((await muster("policy", "apply", "-f", file)).remarks, []);
  const removal = await muster("policy", "rm", "managers");
  t.is(removal.status, 1);
  t.regex(removal.remarks[0] ?? "", /could not reach the manager/);
});

test("Control rejects payloads that are not policies, whoever sends them", async (t) => {
  const { muster } = await lab(t);
  await muster("extension", "create", "NetworkPolicy");
  const { remarks, status } = await muster(
    "resource",
    "create",
    "NetworkPolicy",
    "NetworkPolicy.a",
    written(t, "junk"),
    "--type",
    "type.googleapis.com/muster.v1.NetworkPolicy",
  );
  t.is(status, 1);
  t.regex(remarks[0] ?? "", /invalid payload: expected a muster\.v1\.NetworkPolicy/);
});

test("status and node inspect show each node's report on its dataplane; why says what it waits for", async (t) => {
  const { muster, manager } = await lab(t);
  const report = DataplaneReport.create({
    state: "in-sync",
    restarts: 2,
    driver: "muster-dataplane-nft",
    driverSince: 1_700_000_000,
    endpoints: [
      { id: "a", status: "up" },
      { id: "b", status: "up" },
      { id: "c", status: "error" },
    ],
  });
  const say = (said: DataplaneReport): void =>
    manager.seed(
      "resource",
      Resource.create({
        id: "n2",
        annotations: Annotations.create({ name: "muster.dataplane.n2" }),
        kind: "muster.dataplane",
        payload: Any.create({
          type_url: "type.googleapis.com/muster.v1.DataplaneReport",
          value: DataplaneReport.encode(said),
        }),
      }),
    );
  say(report);
  const { lines } = await muster("policy", "status");
  t.regex(lines.find((line) => line.startsWith("m1")) ?? "", /^m1 +none/);
  t.regex(
    lines.find((line) => line.startsWith("n2")) ?? "",
    /^n2 +in-sync +1 error, 2 up +muster-dataplane-nft, up .+ +2$/,
  );
  const [shown] = JSON.parse((await muster("node", "inspect", "n2")).lines.join("\n"));
  t.deepEqual(shown.Dataplane, {
    State: "in-sync",
    Driver: "muster-dataplane-nft",
    DriverSince: "2023-11-14T22:13:20.000Z",
    Restarts: 2,
    Endpoints: { a: "up", b: "up", c: "error" },
    HostEndpoints: {},
  });
  t.false("Dataplane" in JSON.parse((await muster("node", "inspect", "m1")).lines.join("\n"))[0]);
  t.regex((await muster("node", "inspect", "--pretty", "n2")).lines.join("\n"), /Dataplane:\n State: +in-sync\n/);
  const why = async (subject: string) =>
    (await muster("why", subject)).lines.filter((line) => line.includes("waiting for"));
  t.true(
    (await why("n2")).some((line) =>
      line.endsWith("its dataplane driver to program an endpoint: the driver rejects its rules"),
    ),
  );
  t.true((await why("web.1")).some((line) => line.endsWith("its network policy to be programmed on n2")));
  say(DataplaneReport.patch(report, { endpoints: [{ id: "webtask1/net-web", status: "error" }] }));
  t.true(
    (await why("web.1")).some((line) => line.includes("programmed on n2, whose dataplane driver does not support")),
  );
  say(DataplaneReport.patch(report, { endpoints: [{ id: "webtask1/net-web", status: "up" }] }));
  t.false((await why("web.1")).some((line) => line.includes("network policy")));
  say(DataplaneReport.patch(report, { state: "restarting", reason: "it ended: exit code 1" }));
  t.regex(
    (await why("n2")).join("\n"),
    /the dataplane driver muster-dataplane-nft to be restarted: it ended: exit code 1/,
  );
  t.regex(
    (await why("web.1")).join("\n"),
    /its network policy on n2: the dataplane driver muster-dataplane-nft to be restarted/,
  );
  t.false(
    (await why("db.1")).some((line) => line.includes("network policy")),
    "a node without a dataplane",
  );
  // Removed with the node.
  t.is((await muster("node", "rm", "--force", "n2")).status, 0);
  t.is(manager.store.get("resource", "n2"), undefined);
});
