// The ledger: its chart, and its proposers' outcomes when the log's answers are lost, late or negative.
import test from "ava";
import { startLeadership } from "../../actors/ledger/leadership.ts";
import { ledgerMachine, type LedgerEvent } from "../../machines/ledger/ledger.machine.ts";
import {
  LogRecord,
  ProposeOk,
  ProposeReply,
  ProposeRequest,
  ProposeRequest_Mode,
  Transaction,
} from "../../proto/gen/messages.ts";
import { Host } from "../../runtime/host.ts";
import type { AppendOutcome, Log } from "../../runtime/ports/index.ts";
import { Simulation } from "../../runtime/sim/simulation.ts";
import { Replica } from "../../runtime/store/replica.ts";
import { ErrorCode } from "../../runtime/error-codes.ts";
import * as subjects from "../../runtime/subjects.ts";
import { ChartRun } from "../support/chart-run.ts";
import { create, proposal, service, testTtlMs, update } from "./store-kit.ts";

// The chart.

const play = (...events: readonly LedgerEvent[]) => new ChartRun(ledgerMachine).send(...events);

const taken: LedgerEvent = { type: "lease.taken", revision: 7 };
const reached = (attempt: number, epoch: number, isOwn = false): LedgerEvent => ({
  type: "log.reached",
  attempt,
  epoch,
  isOwn,
});
const appended = (attempt: number, sequence = 1): LedgerEvent => ({ type: "append.appended", attempt, sequence });
const leads = [taken, reached(1, 3), appended(2)] as const;
const appends = [...leads, { type: "work.arrived" }] as const satisfies LedgerEvent[];

test("it leads once its barrier is in the log, with the lease's revision as epoch", (t) => {
  t.is(play(taken).state, "taking");
  t.is(play(taken, reached(1, 3)).state, "barrier");
  const { state, snapshot, names } = play(...leads);
  t.is(state, "leading:idle");
  t.is(snapshot.context.epoch, 7);
  t.deepEqual(names, ["applyAppended", "announceLeading", "lookForWork"]);
});

test("a lease whose revision is below the log's epoch leads with the log's next epoch", (t) => {
  t.is(play(taken, reached(1, 40), appended(2)).snapshot.context.epoch, 41);
});

test("a barrier that conflicts with another record is retried after it, unless that has an equal or newer epoch", (t) => {
  const met = [taken, reached(1, 3), { type: "append.conflict", attempt: 2 }] as const satisfies LedgerEvent[];
  t.is(play(...met).state, "rejoining");
  t.is(play(...met, reached(3, 6)).state, "barrier");
  const outbid = play(...met, reached(3, 7));
  t.is(outbid.state, "following");
  t.deepEqual(outbid.names, ["announceDeposed"]);
});

test("a barrier that turns out to be in the log starts the leadership", (t) => {
  const { state, names } = play(taken, reached(1, 3), { type: "append.conflict", attempt: 2 }, reached(3, 7, true));
  t.is(state, "leading:idle");
  t.deepEqual(names, ["announceLeading", "lookForWork"]);
});

test("an append's outcome determines the batch's outcome", (t) => {
  const after = (event: LedgerEvent) => {
    const { state, names } = play(...appends, event);
    return [state, ...names];
  };
  t.deepEqual(after(appended(3, 2)), ["leading:idle", "applyAppended", "answerBatch", "lookForWork"]);
  t.deepEqual(after({ type: "append.needless", attempt: 3 }), ["leading:idle", "answerBatch", "lookForWork"]);
  t.deepEqual(after({ type: "append.conflict", attempt: 3 }), ["leading:behind", "returnBatch", "catchUp"]);
  t.is(after({ type: "append.unknown", attempt: 3 })[0], "leading:doubting:probing");
  t.deepEqual(after({ type: "append.refused", attempt: 3, code: "logFull", reason: "full" }), [
    "leading:resting",
    "failBatch",
  ]);
});

test("an answer to an earlier append changes nothing", (t) => {
  const { state, names } = play(...appends, appended(2, 9));
  t.is(state, "leading:appending");
  t.deepEqual(names, ["reportUnexpected"]);
});

test("a doubt is resolved by whichever record is in the batch's place", (t) => {
  const doubts = [...appends, { type: "append.unknown", attempt: 3 }] as const satisfies LedgerEvent[];
  t.deepEqual(play(...doubts, appended(4, 2)).names, ["applyAppended", "settleDoubt", "lookForWork"]);
  t.is(play(...doubts, { type: "append.unknown", attempt: 4 }).state, "leading:doubting:waiting");
  const reads = [...doubts, { type: "append.conflict", attempt: 4 }] as const satisfies LedgerEvent[];
  t.is(play(...reads).state, "leading:doubting:reading");
  t.deepEqual(play(...reads, reached(5, 7)).names, ["settleDoubt", "lookForWork"]);
  t.is(play(...reads, reached(5, 8)).state, "following");
});

test("a newer epoch in the log ends the leadership in every state", (t) => {
  for (const before of [leads, appends, [...appends, { type: "append.unknown", attempt: 3 } as const]]) {
    const { state, names } = play(...before, { type: "log.advanced", epoch: 8 });
    t.is(state, "following");
    t.deepEqual(names, ["abandonWork", "announceDeposed"]);
  }
  t.is(play(...leads, { type: "log.advanced", epoch: 7 }).state, "leading:idle");
});

test("the lease's end ends everything that was begun with it", (t) => {
  for (const before of [[taken], [taken, reached(1, 3)], leads, appends]) {
    t.is(play(...before, { type: "lease.ended" }).state, "following");
  }
});

// With a log whose answers fail.

type Fault = "stored, answer lost" | "dropped, answer lost" | "stored late, answer lost" | "refused";

function world(seed: number) {
  const simulation = new Simulation({ seed });
  const ports = simulation.ports("m1");
  const { telemetry, random, bus, log, blobs } = ports;
  const faults: Fault[] = [];
  const appendWith = async (
    fault: Fault | undefined,
    data: Uint8Array,
    expectedLast: number,
  ): Promise<AppendOutcome> => {
    switch (fault) {
      case undefined:
        return log.append(data, expectedLast);
      case "stored, answer lost":
        await log.append(data, expectedLast);
        return { kind: "unknown", reason: fault };
      case "dropped, answer lost":
        return { kind: "unknown", reason: fault };
      case "stored late, answer lost":
        ports.clock.setTimeout(() => void log.append(data, expectedLast), 150);
        return { kind: "unknown", reason: fault };
      case "refused":
        return { kind: "refused", reason: fault };
    }
  };
  /** Replaces the log's bounds while it is set. */
  const told: { bounds?: Awaited<ReturnType<Log["bounds"]>> } = {};
  const faulty: Log = {
    recordBytesMax: log.recordBytesMax,
    read: (from, reader) => log.read(from, reader),
    bounds: (timeoutMs) => (told.bounds === undefined ? log.bounds(timeoutMs) : Promise.resolve(told.bounds)),
    purgeBefore: (sequence) => log.purgeBefore(sequence),
    bytes: (timeoutMs) => log.bytes(timeoutMs),
    space: () => log.space(),
    append: (data, expectedLast) => appendWith(faults.shift(), data, expectedLast),
  };
  const replica = new Replica();
  const host = new Host({ clock: ports.clock, telemetry, onCrash: (id, error) => ports.fail(id, error) });
  const env = { managerId: "m1", clock: ports.clock, random, bus, telemetry, host, store: replica };
  const leadership = startLeadership(env, {
    leases: ports.leases("leases", testTtlMs),
    log: faulty,
    replica,
    blobs,
    startDuties: () => ({ stop: () => {} }),
    onBroken: (error) => ports.fail("store", error),
  });
  const { clock } = simulation;
  const settle = async <Value>(promise: Promise<Value>): Promise<Value> => {
    let isDone = false;
    const watched = promise.finally(() => (isDone = true));
    await clock.run({ until: () => isDone, untilMs: clock.now() + 60_000 });
    return watched;
  };
  const lead = () => clock.run({ until: () => leadership.isLeading(), untilMs: clock.now() + 10_000 });
  const propose = (id: string, name = id) =>
    leadership.proposer.propose(proposal([create({ service: service(id, name) })]));
  return { simulation, leadership, replica, faults, settle, lead, propose, bus, clock, told };
}

for (const fault of ["stored, answer lost", "dropped, answer lost", "stored late, answer lost", "refused"] as const) {
  test(`a proposal whose record was ${fault} happens once and is answered`, async (t) => {
    const { replica, faults, settle, lead, propose } = world(21);
    await lead();
    faults.push(fault);
    const outcome = await settle(propose("s1"));
    t.is(outcome.kind, "committed");
    t.is(replica.count("service"), 1);
    t.is(replica.get("service", "s1")?.meta?.version?.index, outcome.kind === "committed" ? outcome.version : 0);
    t.is(replica.receipt("nothing"), undefined);
  });

  test(`a barrier that was ${fault} does not keep the manager from leading`, async (t) => {
    const { leadership, faults, lead, settle, propose } = world(22);
    faults.push(fault);
    await lead();
    t.true(leadership.isLeading());
    t.is((await settle(propose("s1"))).kind, "committed");
  });
}

test("many lost answers in a row do not affect the final state", async (t) => {
  const { simulation, replica, faults, settle, lead, propose } = world(23);
  await lead();
  const kinds = ["stored, answer lost", "dropped, answer lost", "stored late, answer lost"] as const;
  const random = simulation.random.fork("faults");
  for (let at = 0; at < 120; at += 1) faults.push(kinds[random.below(3)] as Fault);
  const outcomes = [];
  for (let at = 0; at < 20; at += 1) outcomes.push(await settle(propose(`s${at}`)));
  t.true(
    outcomes.every(({ kind }) => kind === "committed"),
    JSON.stringify(outcomes),
  );
  t.is(replica.count("service"), 20);
});

test("a proposal repeated over the bus gets the first answer", async (t) => {
  const { bus, settle, lead, replica } = world(24);
  await lead();
  const request = ProposeRequest.encode(
    ProposeRequest.create({ id: "p1", operations: [create({ service: service("s1", "web") })] }),
  );
  const ask = async () => {
    const outcome = await bus.request(subjects.ledgerPropose, request, { timeoutMs: 1_000 });
    return outcome.kind === "reply" ? ProposeOk.toJson(ProposeReply.decode(outcome.data).ok as ProposeOk) : null;
  };
  const first = await settle(ask());
  t.deepEqual(first, { version: replica.version });
  const [second, third] = await settle(Promise.all([ask(), ask()]));
  t.deepEqual(second, first);
  t.deepEqual(third, first);
});

test("D1: a proposal has a deadline in the leader's time, and the leader announces its time", async (t) => {
  const { bus, settle, lead, replica } = world(31);
  await lead();
  const ask = async (id: string, deadline: number, deadlineEpoch: number) => {
    const operations = [create({ service: service(id, id) })];
    const request = ProposeRequest.encode(ProposeRequest.create({ id, operations, deadline, deadlineEpoch }));
    const outcome = await bus.request(subjects.ledgerPropose, request, { timeoutMs: 1_000 });
    return outcome.kind === "reply" ? ProposeReply.decode(outcome.data) : null;
  };
  const told = await settle(ask("s1", 1, 0));
  t.is(told?.error?.code, ErrorCode.unknownDeadline);
  t.is(told?.epoch, replica.epoch);
  const { clock = 0, epoch = 0 } = told ?? {};
  t.is((await settle(ask("s1", clock, epoch)))?.error?.code, ErrorCode.logUnavailable, "its time is over");
  t.is((await settle(ask("s1", clock + 5_000, epoch + 1)))?.error?.code, ErrorCode.unknownDeadline);
  t.is(replica.count("service"), 0);
  t.truthy((await settle(ask("s1", clock + 5_000, epoch)))?.ok);
  t.is(replica.count("service"), 1);
});

test("a decision made in another epoch than the leader's is rejected", async (t) => {
  const { bus, settle, lead, replica } = world(32);
  await lead();
  const ask = async (id: string, epoch: number) => {
    const operations = [create({ service: service(id, id) })];
    const request = ProposeRequest.encode(ProposeRequest.create({ id, operations, epoch }));
    const outcome = await bus.request(subjects.ledgerPropose, request, { timeoutMs: 1_000 });
    return outcome.kind === "reply" ? ProposeReply.decode(outcome.data) : null;
  };
  const { epoch } = replica;
  for (const other of [epoch - 1, epoch + 1].filter((number) => number > 0))
    t.is((await settle(ask(`s${other}`, other)))?.error?.code, ErrorCode.staleEpoch);
  t.is(replica.count("service"), 0);
  t.truthy((await settle(ask("current", epoch)))?.ok);
  t.truthy((await settle(ask("any", 0)))?.ok);
  t.is(replica.count("service"), 2);
});

test("a proposal that needs no change is answered only once the log confirms its position", async (t) => {
  const { told, settle, lead, leadership, clock } = world(33);
  await lead();
  const operations = [update({ service: service("s1", "web", 5) })];
  const needless = { operations, mode: ProposeRequest_Mode.EACH, timeoutMs: 30_000 };
  for (const bounds of [null, { first: 1, last: 1_000_000 }]) {
    told.bounds = bounds;
    let isAnswered = false;
    const answer = leadership.proposer.propose(needless).finally(() => (isAnswered = true));
    await clock.run({ untilMs: clock.now() + 1_000 });
    t.false(isAnswered, JSON.stringify(bounds));
    delete told.bounds;
    t.is((await settle(answer)).kind, "committed");
  }
});

test("a proposal that changed nothing also keeps its first answer", async (t) => {
  const { bus, settle, lead, propose } = world(25);
  await lead();
  const request = ProposeRequest.encode(
    ProposeRequest.create({ id: "p1", mode: 1, operations: [update({ service: service("s1", "web", 5) })] }),
  );
  const ask = async () => {
    const outcome = await bus.request(subjects.ledgerPropose, request, { timeoutMs: 1_000 });
    return outcome.kind === "reply" ? ProposeReply.decode(outcome.data).ok : null;
  };
  const first = await settle(ask());
  t.is(first?.skipped, 1);
  await settle(propose("s1"));
  t.deepEqual(await settle(ask()), first);
});

test("a proposal that cannot be decoded, or has no id, is malformed", async (t) => {
  const { bus, settle, lead } = world(26);
  await lead();
  for (const data of [Uint8Array.of(255, 255), ProposeRequest.encode(ProposeRequest.create({}))]) {
    const outcome = await settle(bus.request(subjects.ledgerPropose, data, { timeoutMs: 1_000 }));
    t.is(outcome.kind === "reply" ? ProposeReply.decode(outcome.data).error?.code : 0, 106);
  }
});

test("a record carries the trace of its cause, and the proposals that it completes", async (t) => {
  const { simulation, settle, lead, leadership, replica } = world(27);
  await lead();
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  await settle(leadership.proposer.propose({ ...proposal([create({ service: service("s1", "web") })]), traceparent }));
  const [record] = simulation.nats.records(replica.version, 1);
  const transaction = Transaction.decode(LogRecord.decode(record as Uint8Array).transaction);
  t.is(transaction.traceparent, traceparent);
  t.is(transaction.receipts.length, 1);
  t.is(transaction.writer, "m1");
});

test("after its stop a manager's proposals are unavailable", async (t) => {
  const { leadership, lead, settle, propose } = world(28);
  await lead();
  leadership.stop();
  leadership.stop();
  t.is((await settle(propose("s1"))).kind, "unavailable");
});
