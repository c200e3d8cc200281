// Our driver's lifecycle under a scripted main: what it leaves when it dies at any point, which orders of messages main may
// use, and the effect of a broken stream. With real rules and packets.
import { mkdtempSync, rmSync, writeFileSync, chmodSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { frameOf } from "../../../edges/dataplane/frames.ts";
import { ProfileID, ActiveProfileRemove, ToDataplane, WorkloadEndpointRemove } from "../../../proto/gen/felix.ts";
import { allow, body, deny, type Body } from "../../fixtures/dataplane-main.ts";
import { endpoint, lab, picture, rules, shape, start, tcp, test, udp } from "../../fixtures/dataplane-scene.ts";
import { addresses } from "../../fixtures/packet-lab.ts";
import { until } from "../../fixtures/until.ts";

test("nothing is programmed before InSync, and then everything", async (t) => {
  const main = start(t);
  const before = rules();
  main.send(...picture.slice(0, 2), body.config(), ...picture.slice(2));
  t.true(await lab.a.reaches(tcp));
  t.is(rules(), before);
  t.deepEqual(main.received, []);
  main.send(body.inSync);
  await main.settled();
  t.true(rules().includes("table inet muster-policy"));
  t.deepEqual(await lab.a.probe([tcp, udp]), [true, true]);
  t.deepEqual(await lab.h.probe([tcp, udp]), [false, false]);
});

test("a driver killed at any point of its resync interrupts nothing and leaves no old rules", async (t) => {
  const first = start(t);
  first.send(
    body.config(),
    ...picture,
    body.policy("stale", { inboundRules: [allow] }),
    body.set("s:stale", ["10.1.1.1"]),
    body.inSync,
  );
  await first.settled();
  await lab.a.hold("kept", addresses.b.v4, 80);
  await first.end();
  t.true(await lab.a.speaks("kept"));
  for (let point = 0; point <= picture.length + 1; point += 4) {
    const main = start(t);
    main.send(...[body.config(), ...picture, body.inSync].slice(0, point));
    t.deepEqual(await lab.a.probe([tcp, udp]), [true, true], `after ${point} messages`);
    t.false(await lab.h.reaches(tcp, 100));
    await main.end();
    t.true(await lab.a.speaks("kept"), `after ${point} messages`);
  }
  t.true(rules().includes("stale"));
  const last = start(t);
  last.send(body.config(), ...picture, body.inSync);
  await last.settled();
  t.false(rules().includes("stale"));
  t.true(await lab.a.speaks("kept"));
});

test("the same messages in any order, with duplicates and removals of unknown objects, produce the same rules", async (t) => {
  const noise: readonly Body[] = [
    { activeProfileRemove: ActiveProfileRemove.create({ id: ProfileID.create({ name: "never" }) }) },
    {
      workloadEndpointRemove: WorkloadEndpointRemove.create({
        id: body.workload("never", {}).workloadEndpointUpdate?.id ?? null,
      }),
    },
    { workloadEndpointRemove: WorkloadEndpointRemove.create() },
    {},
  ];
  let expected: readonly string[] | null = null;
  let seed = 5;
  const next = (bound: number): number => (seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648) % bound;
  const main = start(t);
  main.send(body.config(), body.inSync);
  await main.settled();
  for (let round = 0; round < 3; round++) {
    const messages = [...picture, ...picture, ...noise].map((one) => ({ one, at: next(1_000_000) }));
    for (const { one } of messages.toSorted((x, y) => x.at - y.at)) {
      main.send(one);
      if (next(6) === 0) await main.settled();
    }
    await main.settled();
    await main.settled();
    const found = shape();
    expected ??= found;
    t.deepEqual(found, expected, `round ${round}`);
    main.send(...removals());
    await main.settled();
  }
  t.false(main.complaints.includes("refused"), main.complaints);
});

function removals(): readonly Body[] {
  const gone: Body[] = [
    { ipsetRemove: { id: "s:a" } as never },
    { ipsetRemove: { id: "p:web" } as never },
    { activeProfileRemove: ActiveProfileRemove.create({ id: ProfileID.create({ name: "open" }) }) },
    { activePolicyRemove: { id: { tier: "default", name: "web" } } as never },
    { hostEndpointRemove: { id: { endpointId: "eth" } } as never },
  ];
  for (const name of ["a", "b"] as const)
    gone.push({
      workloadEndpointRemove: WorkloadEndpointRemove.create({ id: endpoint(name).workloadEndpointUpdate?.id ?? null }),
    });
  return gone;
}

for (const [title, bytes, reason] of [
  ["a length of 2^40", Buffer.from("0000000000010000", "hex"), /exceeds the limit/],
  ["an invalid message", Buffer.from("0200000000000000ffff", "hex"), /cannot read main.s messages/],
] as const) {
  test(`${title} from main ends the driver; the rules stay, and earlier messages remain applied`, async (t) => {
    const main = start(t);
    main.send(body.config(), ...picture, body.inSync);
    await main.settled();
    main.write(bytes);
    await main.ended();
    t.is(main.exit?.code, 1);
    t.regex(main.complaints, reason);
    t.deepEqual(await lab.a.probe([tcp, udp]), [true, true]);
    t.false(await lab.h.reaches(tcp, 100));
  });
}

test("if main exits, between two messages or within one, the driver ends; the rules stay", async (t) => {
  for (const cut of [0, 5, 12]) {
    const main = start(t);
    main.send(body.config(), ...picture, body.inSync);
    await main.settled();
    main.write(frameOf(ToDataplane.encode(ToDataplane.create(body.profile("open", [deny])))).subarray(0, cut));
    main.close();
    await main.ended();
    t.is(main.exit?.code, 1);
    t.deepEqual(await lab.a.probe([tcp, udp]), [true, true]);
  }
});

test("input one byte at a time works like all at once, and messages of other generations are skipped", async (t) => {
  const main = start(t);
  const unknown = Buffer.from("fa0100" + "7801", "hex");
  const messages = [body.config(), ...picture, body.inSync].map((one) =>
    frameOf(ToDataplane.encode(ToDataplane.create(one))),
  );
  const stream = Buffer.concat([
    messages[0] as Buffer,
    frameOf(unknown),
    frameOf(new Uint8Array(0)),
    ...messages.slice(1),
  ]);
  for (const byte of stream) main.write(Uint8Array.of(byte));
  await main.settled();
  t.deepEqual(await lab.a.probe([tcp, udp]), [true, true]);
  t.false(await lab.h.reaches(tcp, 100));
});

test("without a working nft, endpoints are in error, earlier rules stay in force, and the driver retries", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "muster-nft-test-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const fake = join(folder, "nft");
  const write = (script: string): void => {
    writeFileSync(fake, `#!/bin/sh\n${script}\n`);
    chmodSync(fake, 0o755);
  };
  const first = start(t);
  first.send(body.config(), ...picture, body.inSync);
  await first.settled();
  await first.end();
  write("exit 0");
  const main = start(t, { MUSTER_NFT: fake });
  main.send(body.config(), body.profile("open", [allow]), endpoint("a"), endpoint("b"), body.inSync);
  await main.told("error", () => main.statusOf("a") === "error");
  t.regex(main.complaints, /is not nftables' nft/);
  t.false(await lab.h.reaches(tcp, 100), "the last state remains in force");
  write('exec /usr/sbin/nft "$@"');
  await main.told("up", () => main.statusOf("a") === "up");
  t.true(await lab.h.reaches(tcp));
});

test("rules that another program removed are restored, and foreign tables are never touched", async (t) => {
  lab.run("nft", "add", "table", "inet", "foreign");
  lab.run("nft", "add", "chain", "inet", "foreign", "muster");
  t.teardown(() => lab.run("nft", "delete", "table", "inet", "foreign"));
  const foreign = lab.run("nft", "list", "table", "inet", "foreign");
  const main = start(t);
  main.send(body.config({ IptablesRefreshInterval: "0.3", ReportingIntervalSecs: "0.2" }), ...picture, body.inSync);
  await main.settled();
  lab.run("nft", "delete", "table", "inet", "muster-policy");
  t.true(await lab.h.reaches(tcp));
  await until("the rules", () => lab.run("nft", "list", "tables").includes("muster-policy"));
  t.false(await lab.h.reaches(tcp, 100));
  t.is(lab.run("nft", "list", "table", "inet", "foreign"), foreign);
  const pulse = main.received.find(({ processStatusUpdate }) => processStatusUpdate !== null)?.processStatusUpdate;
  t.regex(pulse?.isoTimestamp ?? "", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  t.true((pulse?.uptime ?? 0) > 0 && (pulse?.uptime ?? 0) < 60);
});

test("a table of ours that cannot be written to is replaced whole in one transaction", async (t) => {
  const before = start(t);
  before.send(body.config(), ...picture, body.inSync);
  await before.settled();
  await before.end();
  const wanted = shape();
  // As another version of the driver might have created it: the same set name with another element type.
  const nft = (...words: readonly string[]): string => lab.run("nft", ...words);
  nft("delete", "table", "inet", "muster-policy");
  nft("add", "table", "inet", "muster-policy");
  nft("add", "set", "inet", "muster-policy", "workload-sources-4", "{ type ipv4_addr; }");
  nft("add", "chain", "inet", "muster-policy", "of-another-version");
  const main = start(t);
  main.send(body.config(), ...picture, body.inSync);
  await main.settled();
  await main.settled();
  t.regex(main.complaints, /rewriting everything/);
  t.deepEqual(shape(), wanted);
  t.deepEqual(await lab.a.probe([tcp, udp]), [true, true]);
});

test("a signal ends it at once, with the rules in place", async (t) => {
  const main = start(t);
  main.send(body.config(), ...picture, body.inSync);
  await main.settled();
  main.child.kill("SIGTERM");
  await main.ended();
  t.is(main.exit?.code, 1);
  t.deepEqual(await lab.a.probe([tcp, udp]), [true, true]);
});
