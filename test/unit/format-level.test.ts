// The level of the log's format: raised once every manager knows it, and a stop for versions that do not.
import test from "ava";
import { levelWarnings, startFormatLevel } from "../../actors/manager/format-level.ts";
import { startMembership } from "../../actors/manager/membership.ts";
import { decide } from "../../machines/ledger/proposals.ts";
import { formatId, knownLevel } from "../../proto/format-level.ts";
import { EngineDescription, Format, Manager, Node, NodeDescription } from "../../proto/gen/messages.ts";
import { FutureRecord } from "../../runtime/store/log-break.ts";
import { Replica } from "../../runtime/store/replica.ts";
import { FutureSnapshot } from "../../runtime/store/snapshot.ts";
import { Staging } from "../../runtime/store/staging.ts";
import { creation, removal, replacement } from "../../actors/control/write.ts";
import { testBus } from "../support/bus.ts";
import { testManager } from "../support/manager.ts";
import { put, replicaOf, service, Writer } from "./store-kit.ts";

const manager = (id: string, level: number, alive = true) => Manager.create({ id, addr: `${id}:2377`, alive, level });
const format = (level: number) => Format.create({ id: formatId, level });
/** A state with these managers and level; 0: no level. */
function stateOf(level: number, ...managers: Manager[]): Staging {
  const writer = new Writer();
  writer.write([
    ...managers.map((each) => put({ manager: each })),
    ...(level === 0 ? [] : [put({ format: format(level) })]),
  ]);
  return new Staging(replicaOf(writer, { level: 9 }));
}
const outcome = (view: Staging, operation: ReturnType<typeof creation>) => {
  const decision = decide(view, operation);
  return decision.kind === "refused" ? `${decision.code}: ${decision.message}` : decision.kind;
};

test("P11: the level only increases, and only to what every manager knows, dead ones included", (t) => {
  t.is(outcome(stateOf(0, manager("a", 2), manager("b", 2)), creation("format", format(2))), "change");
  t.regex(outcome(stateOf(0, manager("a", 2), manager("b", 0)), creation("format", format(2))), /^wrongLevel: .*: b$/);
  t.regex(outcome(stateOf(0, manager("a", 2), manager("b", 1, false)), creation("format", format(2))), /: b$/);
  t.regex(outcome(stateOf(0), creation("format", format(1))), /^wrongLevel: .*can only increase from 1$/);
  t.regex(outcome(stateOf(0), creation("format", Format.create({ id: "x", level: 2 }))), /^wrongLevel/);
  const later = stateOf(3, manager("a", 4));
  const to = (level: number) =>
    outcome(later, replacement("format", Format.patch(later.get("format", formatId) ?? Format.create(), { level })));
  t.deepEqual([to(4), to(3).split(":")[0], to(2).split(":")[0]], ["change", "wrongLevel", "wrongLevel"]);
  t.regex(outcome(later, removal("format", formatId)), /^wrongLevel: .*cannot be removed/);
});

test("P11: a manager that does not know the level is not listed", (t) => {
  const view = stateOf(3);
  t.is(outcome(view, creation("manager", manager("b", 3))), "change");
  t.regex(outcome(view, creation("manager", manager("b", 2))), /^wrongLevel: .*level 3, which manager b does not know/);
  t.is(outcome(stateOf(0), creation("manager", manager("b", 0))), "change", "versions without levels know the first");
});

test("S7: a record that raises the level beyond what a version knows is not applied, and its writer is named", (t) => {
  const writer = new Writer();
  const engine = EngineDescription.create({ engineVersion: "9.9.9" });
  const description = NodeDescription.create({ hostname: "alpha", engine });
  writer.write([put({ node: Node.create({ id: "m1", description }) })]);
  const replica = replicaOf(writer);
  const raising = [put({ service: service("s1", "web") }), put({ format: format(knownLevel + 1) })];
  const record = writer.encode(raising);
  const error = t.throws(() => replica.apply(2, record), { instanceOf: FutureRecord });
  t.regex(
    error?.message ?? "",
    new RegExp(
      `record 2: its format has level ${knownLevel + 1}, but .* knows level ${knownLevel} at most; written by manager alpha \\(m1\\), version 9\\.9\\.9$`,
    ),
  );
  t.deepEqual([replica.version, replica.count("service"), replica.count("format")], [1, 0, 0]);

  const newer = new Replica({ level: knownLevel + 1 });
  newer.load(replica.snapshot());
  newer.apply(2, record);
  const snapshot = newer.snapshot();
  const refusal = t.throws(() => replica.load(snapshot), { instanceOf: FutureSnapshot });
  t.regex(refusal?.message ?? "", /its format has level/);
  t.deepEqual([replica.version, replica.count("service")], [1, 0], "nothing of the snapshot either");
});

for (const last of ["upgraded", "removed"])
  test(`the leader raises the level when the last manager that did not know it is ${last}`, async (t) => {
    const { drop, env, proposals, seed, store, clock } = testManager("a");
    const run = () => clock.run({ untilMs: clock.now() + 20_000 });
    const below = knownLevel - 1;
    const engine = EngineDescription.create({ engineVersion: "0.1.0" });
    seed("node", Node.create({ id: "c", description: NodeDescription.create({ hostname: "gamma", engine }) }));
    seed("manager", manager("a", knownLevel), manager("b", below), manager("c", 0, false));
    const levels = startFormatLevel(env, knownLevel);
    t.teardown(() => levels.stop());
    await run();
    t.regex(
      levelWarnings(store, knownLevel).join(" "),
      /stays at level 1 .* knows level 2: upgrade b, gamma \(0\.1\.0\), or demote/,
    );
    seed("manager", manager("b", knownLevel));
    await run();
    t.deepEqual([store.count("format"), proposals.length], [0, 0], "not while a dead one may come back");
    if (last === "removed") drop("manager", "c");
    else seed("manager", manager("c", knownLevel + 1, false));
    await run();
    t.is(store.get("format", formatId)?.level, knownLevel);
    t.deepEqual(levelWarnings(store, knownLevel), []);
    seed("manager", manager("b", knownLevel, false));
    await run();
    t.is(proposals.length, 1, "once");
  });

test("a level that cannot be written is written later", async (t) => {
  const world = testManager("a");
  const { env, seed, store, clock } = world;
  const run = () => clock.run({ untilMs: clock.now() + 6_000 });
  seed("manager", manager("a", knownLevel));
  world.leaderless = true;
  const levels = startFormatLevel(env, knownLevel);
  t.teardown(() => levels.stop());
  await run();
  t.is(store.count("format"), 0);
  world.leaderless = false;
  await run();
  t.is(store.get("format", formatId)?.level, knownLevel);
});

test("a manager's record has the level that it knows, and follows it", async (t) => {
  const { clock, env, seed, store } = testManager("m1");
  seed("manager", manager("m1", 0));
  const membership = startMembership({ ...env, bus: testBus() }, { addr: "m1:2377" });
  t.teardown(() => membership.stop());
  await clock.run({ untilMs: clock.now() + 20 });
  t.is(store.get("manager", "m1")?.level, knownLevel);
});
