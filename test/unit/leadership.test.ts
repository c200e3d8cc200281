// Managers on one simulated NATS: who leads, what is written, and the resulting state of every replica.
import test from "ava";
import { ProposeRequest_Mode } from "../../proto/gen/messages.ts";
import { Simulation } from "../../runtime/sim/simulation.ts";
import { listSnapshots } from "../../runtime/store/snapshots.ts";
import { addManager, create, proposal, service, task, testTtlMs, type TestManager } from "./store-kit.ts";

function world(seed: number, names: readonly string[], parts: Parameters<typeof addManager>[2] = {}) {
  const simulation = new Simulation({ seed });
  const managers = names.map((name) => addManager(simulation, name, parts));
  const { clock } = simulation;
  const run = (ms: number) => clock.run({ untilMs: clock.now() + ms });
  const runUntil = async (condition: () => boolean, ms = 30_000) =>
    (await clock.run({ until: condition, untilMs: clock.now() + ms })) === "until";
  const leaders = () => managers.filter(({ process, leadership }) => process.isRunning && leadership.isLeading());
  const [first, second] = managers as [TestManager, TestManager];
  /** The one leader, and another manager. */
  const roles = async () => {
    await runUntil(() => leaders().length === 1);
    return leaders()[0] === first ? { leader: first, other: second } : { leader: second, other: first };
  };
  return { simulation, clock, managers, run, runUntil, leaders, roles };
}

/** Cuts both directions between a manager and NATS; returns a function that heals them. */
function cutOff(simulation: Simulation, name: string): () => void {
  const ways = [
    ["nats", name],
    [name, "nats"],
  ] as const;
  for (const [from, to] of ways) simulation.network.cut(from, to);
  return () => {
    for (const [from, to] of ways) simulation.network.heal(from, to);
  };
}

/** The value of a promise that virtual time must settle. */
async function value<Value>(
  runUntil: (condition: () => boolean) => Promise<boolean>,
  promise: Promise<Value>,
): Promise<Value> {
  let isDone = false;
  const watched = promise.finally(() => (isDone = true));
  await runUntil(() => isDone);
  return watched;
}

test("one of two managers leads, within a second of starting, and both know which", async (t) => {
  const { leaders, run, roles, managers } = world(1, ["m1", "m2"]);
  await run(2_500);
  t.is(leaders().length, 1);
  const { leader, other } = await roles();
  const epoch = leader.replica.epoch;
  t.deepEqual(leader.story, [`duties ${epoch}`]);
  t.deepEqual(other.story, []);
  for (const { leadership } of managers) t.deepEqual(leadership.leader(), { managerId: leader.env.managerId, epoch });
});

test("a leader with a healthy bus keeps its lease", async (t) => {
  const { run, roles } = world(2, ["m1", "m2"]);
  const { leader, other } = await roles();
  await run(60_000);
  t.true(leader.leadership.isLeading());
  t.is(leader.story.length, 1);
  t.is(other.story.length, 0);
});

test("proposals of either manager reach both replicas, and the proposer's before it is answered", async (t) => {
  const { run, runUntil, roles } = world(3, ["m1", "m2"]);
  const { leader, other } = await roles();
  for (const [at, manager] of [leader, other].entries()) {
    const outcome = await value(
      runUntil,
      manager.leadership.proposer.propose(proposal([create({ service: service(`s${at}`, `name${at}`) })])),
    );
    t.is(outcome.kind, "committed");
    t.is(
      manager.replica.get("service", `s${at}`)?.meta?.version?.index,
      outcome.kind === "committed" ? outcome.version : -1,
    );
  }
  await run(1_000);
  t.is(leader.replica.version, other.replica.version);
  t.is(leader.replica.stateHash(), other.replica.stateHash());
  t.is(other.replica.count("service"), 2);
});

test("a rejection returns its code and changes nothing", async (t) => {
  const { runUntil, roles } = world(4, ["m1", "m2"]);
  const { other } = await roles();
  await value(runUntil, other.leadership.proposer.propose(proposal([create({ service: service("s1", "web") })])));
  const outcome = await value(
    runUntil,
    other.leadership.proposer.propose(
      proposal([create({ service: service("s2", "new") }), create({ service: service("s3", "WEB") })]),
    ),
  );
  t.like(outcome, {
    kind: "refused",
    code: 103,
    message: "name conflicts with an existing object: service WEB already exists",
  });
  t.is(other.replica.count("service"), 1);
});

test("concurrent proposals share one record, and those that do not fit go into the next", async (t) => {
  const { run, roles, runUntil } = world(5, ["m1", "m2"], { batchLimits: { changesMax: 10 } });
  const { leader } = await roles();
  await run(1_000);
  const before = leader.replica.version;
  const commits: number[] = [];
  leader.replica.watch((commit) => commits.push(commit.changes.length));
  const made = Array.from({ length: 25 }, (_, at) =>
    leader.leadership.proposer.propose(proposal([create({ task: task(`t${at}`) })])),
  );
  const outcomes = await value(runUntil, Promise.all(made));
  t.true(outcomes.every((outcome) => outcome.kind === "committed"));
  t.deepEqual(commits, [10, 10, 5]);
  t.is(leader.replica.version, before + 3);
});

test("a large proposal of mode EACH is split, and a large atomic one is rejected", async (t) => {
  const { roles, runUntil } = world(6, ["m1", "m2"], { batchLimits: { bytesMax: 4_000 } });
  const { leader, other } = await roles();
  const operations = Array.from({ length: 200 }, (_, at) => create({ task: task(`t${at}`.padEnd(25, "_")) }));
  const atomic = await value(runUntil, other.leadership.proposer.propose(proposal(operations)));
  t.like(atomic, { kind: "refused", code: 105 });
  const each = await value(
    runUntil,
    other.leadership.proposer.propose(proposal([...operations, ...operations], { mode: ProposeRequest_Mode.EACH })),
  );
  t.like(each, { kind: "committed", skipped: 200 });
  t.is(leader.replica.count("task"), 200);
});

test("a killed leader is succeeded within six seconds, and no acknowledged write is lost", async (t) => {
  const { roles, runUntil, clock, leaders } = world(7, ["m1", "m2"]);
  const { leader, other } = await roles();
  await value(runUntil, leader.leadership.proposer.propose(proposal([create({ service: service("s1", "before") })])));
  const epoch = leader.replica.epoch;
  const killedAt = clock.now();
  leader.process.crash();
  const outcome = await value(
    runUntil,
    other.leadership.proposer.propose(proposal([create({ service: service("s2", "after") })])),
  );
  t.is(outcome.kind, "committed");
  t.true(clock.now() - killedAt < 6_000, `${clock.now() - killedAt} ms`);
  t.true(other.replica.epoch > epoch);
  t.truthy(other.replica.byName("service", "before"));
  leader.process.start();
  await runUntil(() => leader.replica.version === other.replica.version);
  t.is(leader.replica.stateHash(), other.replica.stateHash());
  t.is(leaders().length, 1);
});

test("a restarted manager resumes the lease of its earlier life at once", async (t) => {
  const { roles, runUntil, clock } = world(8, ["m1"]);
  await runUntil(() => false, 3_000);
  const { leader } = await roles();
  leader.process.restart();
  const from = clock.now();
  t.true(await runUntil(() => leader.leadership.isLeading()));
  t.true(clock.now() - from < testTtlMs / 3, `${clock.now() - from} ms`);
});

test("a released lease is taken by another without waiting for its expiry", async (t) => {
  const { roles, runUntil, clock } = world(9, ["m1", "m2"]);
  const { leader, other } = await roles();
  const from = clock.now();
  const released = leader.leadership.release();
  t.false(leader.leadership.isLeading());
  t.true(await runUntil(() => other.leadership.isLeading()));
  await released;
  t.true(clock.now() - from < testTtlMs / 2, `${clock.now() - from} ms`);
  t.is(leader.story.length, 2);
});

test("a manager that may not lead writes nothing, and leaves the lease to one that may", async (t) => {
  const simulation = new Simulation({ seed: 8 });
  const asked: number[] = [];
  const demoted = addManager(simulation, "m1", { mayLead: () => asked.push(simulation.clock.now()) === 0 });
  const run = (ms: number) => simulation.clock.run({ untilMs: simulation.clock.now() + ms });
  await run(10_000);
  t.true(asked.length > 0, "it held the lease");
  t.is(simulation.nats.last, 0);
  t.deepEqual(demoted.story, []);
  const other = addManager(simulation, "m2");
  await run(30_000);
  t.true(other.leadership.isLeading());
  t.deepEqual(demoted.story, []);
});

test("a leader that steps down ends its duties and leads again, or another does, in a new epoch", async (t) => {
  const { roles, runUntil } = world(16, ["m1"]);
  const { leader } = await roles();
  const { epoch } = leader.replica;
  leader.leadership.stepDown();
  t.false(leader.leadership.isLeading());
  t.true(await runUntil(() => leader.leadership.isLeading()));
  t.true(leader.replica.epoch > epoch);
  t.deepEqual(leader.story, [`duties ${epoch}`, `ended ${epoch}`, `duties ${leader.replica.epoch}`]);
});

test("a leader that is cut off stops its duties before another starts, and cannot write when it returns", async (t) => {
  const { simulation, roles, runUntil, run, clock } = world(10, ["m1", "m2"]);
  const { leader, other } = await roles();
  const heal = cutOff(simulation, leader.process.name);
  const cutAt = clock.now();
  const lost = leader.leadership.proposer.propose(
    proposal([create({ service: service("lost", "lost") })], { timeoutMs: 4_000 }),
  );
  t.true(await runUntil(() => !leader.leadership.isLeading()));
  t.false(other.leadership.isLeading());
  t.true(clock.now() - cutAt < testTtlMs);
  t.true(await runUntil(() => other.leadership.isLeading()));
  t.is((await value(runUntil, lost)).kind, "unavailable");
  await value(runUntil, other.leadership.proposer.propose(proposal([create({ service: service("kept", "kept") })])));
  heal();
  await run(8_000);
  t.false(leader.leadership.isLeading());
  t.is(leader.replica.stateHash(), other.replica.stateHash());
  t.truthy(leader.replica.byName("service", "kept"));
});

test("a leader that was paused past its lease yields as soon as it runs again", async (t) => {
  const { roles, run, runUntil } = world(11, ["m1", "m2"]);
  const { leader, other } = await roles();
  leader.process.pause(10_000);
  t.true(await runUntil(() => other.leadership.isLeading()));
  const stale = leader.leadership.proposer.propose(proposal([create({ service: service("s1", "stale") })]));
  await run(15_000);
  t.true(other.leadership.isLeading());
  t.false(leader.leadership.isLeading());
  // Whatever path it took, it happened once and both know it.
  t.is((await value(runUntil, stale)).kind, "committed");
  t.is(other.replica.count("service"), 1);
  t.is(leader.replica.stateHash(), other.replica.stateHash());
});

test("a proposal without any leader is unavailable and known not to have happened", async (t) => {
  const { simulation, runUntil } = world(12, []);
  const lonely = addManager(simulation, "m1", { leases: neverFree() });
  const outcome = await value(
    runUntil,
    lonely.leadership.proposer.propose(proposal([create({ service: service("s", "s") })], { timeoutMs: 2_000 })),
  );
  t.like(outcome, { kind: "unavailable", maybe: false });
});

test("the log of a server that comes and goes loses no acknowledged write and duplicates none", async (t) => {
  const { simulation, managers, run, runUntil } = world(13, ["m1", "m2"]);
  const outcomes: Promise<{ kind: string }>[] = [];
  for (let at = 0; at < 60; at += 1) {
    const proposer = managers[at % 2]?.leadership.proposer;
    if (proposer !== undefined)
      outcomes.push(
        proposer.propose(proposal([create({ service: service(`s${at}`, `n${at}`) })], { timeoutMs: 60_000 })),
      );
    if (at % 20 === 10) simulation.nats.crash({ loseTail: false });
    if (at % 20 === 15) simulation.nats.start();
    await run(317);
  }
  // Each create is accepted exactly once: a second time it would have been rejected with `exists`.
  t.true(
    (await value((condition) => runUntil(condition, 90_000), Promise.all(outcomes))).every(
      ({ kind }) => kind === "committed",
    ),
  );
  await run(5_000);
  for (const { replica } of managers) t.is(replica.count("service"), 60);
  t.is(managers[0]?.replica.stateHash(), managers[1]?.replica.stateHash());
});

test("snapshots are written as records arrive, the newest two stay, and the log is purged behind them", async (t) => {
  const { simulation, roles, runUntil, run } = world(14, ["m1", "m2"], {
    snapshots: { everyRecords: 10, historyRecordsKept: 10 },
  });
  const { leader, other } = await roles();
  for (let at = 0; at < 55; at += 1) {
    await value(
      runUntil,
      leader.leadership.proposer.propose(proposal([create({ service: service(`s${at}`, `n${at}`) })])),
    );
  }
  await run(2_000);
  const kept = await value(runUntil, listSnapshots(simulation.ports("reader").blobs));
  t.is(kept.length, 2);
  t.true((kept[0] ?? 0) >= 50);
  t.true(simulation.nats.first > 30, `first is ${simulation.nats.first}`);
  t.true(simulation.nats.first <= (kept[1] ?? 0) + 1);
  other.process.restart();
  t.true(await runUntil(() => other.replica.version === leader.replica.version));
  t.is(other.replica.stateHash(), leader.replica.stateHash());
});

test("a manager cut off until the log was purged catches up by snapshot, and its watchers miss nothing", async (t) => {
  const { simulation, roles, runUntil, run } = world(15, ["m1", "m2"], {
    snapshots: { everyRecords: 10, historyRecordsKept: 10 },
  });
  const { leader, other } = await roles();
  const seen = new Set<string>();
  other.replica.watch((commit) => {
    for (const { object } of commit.changes) seen.add(object.id);
  });
  const heal = cutOff(simulation, other.process.name);
  for (let at = 0; at < 55; at += 1) {
    await value(
      runUntil,
      leader.leadership.proposer.propose(proposal([create({ service: service(`s${at}`, `n${at}`) })])),
    );
  }
  await run(2_000);
  heal();
  t.true(await runUntil(() => other.replica.version === leader.replica.version));
  t.is(seen.size, 55);
  t.is(other.replica.stateHash(), leader.replica.stateHash());
});

/** A bucket in which another manager holds the key permanently. */
function neverFree() {
  return {
    ttlMs: testTtlMs,
    create: async () => ({ kind: "conflict" as const }),
    update: async () => ({ kind: "conflict" as const }),
    get: async () => ({ kind: "found" as const, value: new Uint8Array(0), revision: 1 }),
    remove: async () => {},
  };
}
