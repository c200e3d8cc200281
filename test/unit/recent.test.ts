// Reading what managers and agents keep of their last minutes, at one manager.
import test from "ava";
import type { KeptRecording } from "../../actors/inspection/kept-recording.ts";
import { recentsMax } from "../../actors/inspection/inspection.ts";
import { readingsMax } from "../../actors/inspection/readings.ts";
import {
  ActorFeed,
  ActorSelection,
  ActorStep,
  RecentActorsRequest,
  RecentQuestion,
  RecentReply,
  RecordedLine,
  RecordedSpan,
  RecordedTransaction,
  RecordingEnd,
  RecordingPart,
} from "../../proto/gen/messages.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import * as subjects from "../../runtime/subjects.ts";
import { inspectionWorld } from "../support/inspection-world.ts";
import { call, collectedStream, refusalOf } from "../support/manager.ts";

/** Keeps `count` messages, one a second, the newest now. */
function keeps(process: string, count: number, bytes = 100): KeptRecording & { readonly taken: () => number } {
  let taken = 0;
  return {
    taken: () => taken,
    *parts(sinceMs) {
      const first = sinceMs === 0 ? 1 : count - sinceMs / 1_000 + 1;
      for (let sequence = first; sequence <= count; sequence += 1) {
        taken += 1;
        const steps = [ActorStep.create({ actor: "a/1", context: "x".repeat(bytes) })];
        yield RecordingPart.create({ feed: ActorFeed.create({ process, sequence, steps }) });
      }
    },
  };
}

const summary = (parts: readonly RecordingPart[]): readonly string[] =>
  [...new Map(parts.flatMap(({ feed }) => (feed === null ? [] : [[feed.process, feed.sequence] as const])))].map(
    ([process, sequence]) => `${process} to ${sequence}`,
  );

test("the recordings of all managers and agents arrive one after the other, each oldest first, and then the end", async (t) => {
  const { connect, one, recent, run, two } = inspectionWorld({
    "manager-m1": keeps("manager-m1", 3),
    "manager-m2": keeps("manager-m2", 4),
    "node-n1": keeps("node-n1", 5),
  });
  connect(two);
  const { stream } = recent(one);
  await run(1_000);
  t.is(stream.ended, null);
  t.deepEqual(summary(stream.messages), ["manager-m1 to 3", "manager-m2 to 4", "node-n1 to 5"]);
  t.deepEqual(
    stream.messages.map(({ feed }) => feed?.sequence ?? 0),
    [1, 2, 3, 1, 2, 3, 4, 1, 2, 3, 4, 5, 0],
  );
  t.like(stream.messages.at(-1)?.end, { parts: 12, missing: [] });

  const last = recent(one, { processes: ["node-n1"] }, 2_000);
  await run(1_000);
  t.deepEqual(
    last.stream.messages.map(({ feed }) => feed?.sequence ?? 0),
    [4, 5, 0],
  );
});

test("RC1: the end names each process that cannot be read, with the reason", async (t) => {
  const { bus, connect, one, recent, run, two } = inspectionWorld({ "manager-m1": keeps("manager-m1", 1) });
  connect(one, { hears: false });
  const { stream } = recent(one);
  await run(10_000);
  t.deepEqual(stream.messages.at(-1)?.end?.missing, [
    "node-n1: the node's agent does not answer",
    "manager-m2: the process keeps no recording",
  ]);

  two.service.stop();
  const chosen = recent(one, { processes: ["manager-m2", "node-stock"] });
  await run(1_000);
  t.deepEqual(chosen.stream.messages.at(-1)?.end?.missing, [
    "manager-m2: no process of the manager is on the bus, or its version keeps no recordings",
    "node-stock: the node's agent is not connected to a manager that can be reached, or is not an agent of Muster",
  ]);

  bus.loses = (subject) => subject === subjects.recentRead("m2");
  const silent = recent(one, { processes: ["manager-m2"] });
  await run(30_000);
  t.deepEqual(silent.stream.messages.at(-1)?.end?.missing, ["manager-m2: manager m2 does not answer"]);
  t.is((await refusalOf(() => recent(one, { processes: ["m2"] })))?.code, Status.INVALID_ARGUMENT);
});

test("NR1: an agent's parts count as its own, and have nothing that only managers know", async (t) => {
  const forged: KeptRecording = {
    parts: () => [
      RecordingPart.create({ feed: ActorFeed.create({ process: "manager-m1", sequence: 7 }) }),
      RecordingPart.create({ line: RecordedLine.create({ process: "manager-m1", text: "said" }) }),
      RecordingPart.create({ span: RecordedSpan.create({ process: "manager-m1", name: "did" }) }),
      RecordingPart.create({ transaction: RecordedTransaction.create({ version: 9 }) }),
      RecordingPart.create({ end: RecordingEnd.create({ parts: 1 }) }),
    ],
  };
  const { connect, one, recent, run, two } = inspectionWorld({ "node-n1": forged });
  connect(two);
  const { stream } = recent(one, { processes: ["node-n1"] });
  await run(1_000);
  const [feed, line, span, ...others] = stream.messages;
  t.like(feed?.feed, { process: "node-n1", sequence: 7 });
  t.like(line?.line, { process: "node-n1", text: "said" });
  t.like(span?.span, { process: "node-n1", name: "did" });
  t.deepEqual(
    others.map(({ end, transaction }) => [end?.parts, transaction]),
    [
      [undefined, null],
      [undefined, null],
      [5, null],
    ],
  );
});

test("a lost answer is asked for again, and nothing arrives twice or is left out", async (t) => {
  const { bus, connect, one, recent, run, two } = inspectionWorld({
    "manager-m2": keeps("manager-m2", 100, 20_000),
    "node-n1": keeps("node-n1", 100, 20_000),
  });
  connect(two);
  let requests = 0;
  bus.losesAnswer = (subject) => subject === subjects.recentRead("m2") && (requests += 1) % 3 === 2;
  const { stream } = recent(one);
  await run(20_000);
  const numbers = stream.messages.flatMap(({ feed }) => (feed === null ? [] : [`${feed.process} ${feed.sequence}`]));
  t.true(requests > 15);
  t.is(numbers.length, 200);
  t.is(new Set(numbers).size, 200);
  t.deepEqual(stream.messages.at(-1)?.end?.missing, ["manager-m1: the process keeps no recording"]);
});

test("a client that does not read stops the reading at its source; one that leaves ends it", async (t) => {
  const [manager, node] = [keeps("manager-m2", 1_000, 20_000), keeps("node-n1", 1_000, 20_000)];
  const { connect, one, recent, run, two } = inspectionWorld({ "manager-m2": manager, "node-n1": node });
  connect(two);
  const slow = recent(one, { processes: ["manager-m2"] });
  const slowOfNode = recent(one, { processes: ["node-n1"] });
  slow.stream.buffered = 1e9;
  slowOfNode.stream.buffered = 1e9;
  await run(1_000);
  t.true(manager.taken() < 30, "about a batch of the manager's 20 MB");
  t.true(node.taken() < 30, "and of the agent's");
  slow.leave();
  slow.stream.buffered = 0;
  slowOfNode.stream.buffered = 0;
  await run(2_000);
  t.true(manager.taken() < 30);
  t.is(node.taken(), 1_000);
});

test("KR2: a recording that cannot be read is missing, with the reason, and nothing else is", async (t) => {
  const broken: KeptRecording = {
    *parts() {
      yield RecordingPart.create({ feed: ActorFeed.create({ process: "node-n1", sequence: 1 }) });
      throw new Error("unexpected end of file");
    },
  };
  const { connect, one, recent, run, two } = inspectionWorld({
    "manager-m1": broken,
    "manager-m2": keeps("manager-m2", 2),
    "node-n1": broken,
  });
  connect(two);
  const { stream } = recent(one);
  await run(1_000);
  t.deepEqual(summary(stream.messages), ["manager-m2 to 2"]);
  const reason = "its recording cannot be read: unexpected end of file";
  t.deepEqual(stream.messages.at(-1)?.end?.missing, [`manager-m1: ${reason}`, `node-n1: ${reason}`]);
});

test("a recording that cannot be signed ends with INTERNAL, in words", async (t) => {
  const { one, run } = inspectionWorld({ "manager-m1": keeps("manager-m1", 1) });
  one.service.stop();
  const service = one.start("second life", () => {
    throw new Error("the key is unreadable");
  });
  const stream = collectedStream<RecordingPart>();
  const selection = ActorSelection.create({ processes: ["manager-m1"] });
  service.handlers.Record(RecentActorsRequest.create({ selection }), stream, call({}));
  await run(1_000);
  t.is(stream.ended?.code, Status.INTERNAL);
  t.regex(stream.ended?.message ?? "", /cannot send the recording: the key is unreadable/);
});

test("a part that is too large for the bus ends the reading of its process, with the reason", async (t) => {
  const { one, recent, run } = inspectionWorld({ "manager-m2": keeps("manager-m2", 2, 800_000) });
  const { stream } = recent(one, { processes: ["manager-m2"] });
  await run(1_000);
  t.regex(stream.messages.at(-1)?.end?.missing[0] ?? "", /^manager-m2: a part is too large: 800\d\d\d bytes$/);
});

test("readings that have ended make space: a manager with more agents than the limit is read whole", async (t) => {
  const nodeIds = Array.from({ length: readingsMax + 6 }, (_, at) => `w${at}`);
  const recordings = nodeIds.map((id) => [`node-${id}`, keeps(`node-${id}`, 2)] as const);
  const { bus, connect, one, recent, run, two } = inspectionWorld(Object.fromEntries(recordings));
  for (const nodeId of nodeIds) connect(two, { nodeId });
  let answers = 0;
  bus.losesAnswer = (subject) => subject === subjects.recentRead("m2") && (answers += 1) % 20 === 0;
  const { stream } = recent(one);
  await run(60_000);
  const read = new Set(stream.messages.flatMap(({ feed }) => (feed === null ? [] : [feed.process])));
  t.is(read.size, nodeIds.length);
  t.deepEqual(stream.messages.at(-1)?.end?.missing, [
    "manager-m1: the process keeps no recording",
    "manager-m2: the process keeps no recording",
  ]);
});

test("KR1: of the readings of several clients, the longest unused one that has ended makes space", async (t) => {
  const kept = keeps("manager-m2", 2);
  const { bus, run } = inspectionWorld({ "manager-m2": kept });
  /** Resolves to how many parts were read from the recording so far. */
  const ask = async (reading: string): Promise<number> => {
    const question = RecentQuestion.create({ reading, process: "manager-m2", number: 1 });
    await bus.request(subjects.recentRead("m2"), RecentQuestion.encode(question), { timeoutMs: 1_000 });
    await run(10);
    return kept.taken();
  };
  for (let number = 0; number < readingsMax; number += 1) await ask(`r${number}`);
  const taken = 2 * readingsMax;
  t.is(await ask("r0"), taken, "its answer again");
  t.is(await ask("one more"), taken + 2);
  t.is(await ask("r0"), taken + 2, "its answer again");
  t.is(await ask("r1"), taken + 4, "read anew");
});

test("clients and readings beyond a limit are refused; a reading that nobody continues is over", async (t) => {
  const { bus, one, recent, run } = inspectionWorld({ "manager-m2": keeps("manager-m2", 1_000, 20_000) });
  const ask = async (reading: string, number: number) => {
    const question = RecentQuestion.create({ reading, process: "manager-m2", number });
    const subject = subjects.recentRead("m2");
    const outcome = await bus.request(subject, RecentQuestion.encode(question), { timeoutMs: 1_000 });
    return outcome.kind === "reply" ? RecentReply.decode(outcome.data).failed : "no answer";
  };
  for (let number = 0; number < readingsMax; number += 1) t.is(await ask(`r${number}`, 1), "");
  t.regex(await ask("one more", 1), /already serves 64 readings/);
  await run(50_000);
  t.is(await ask("r0", 2), "");
  await run(50_000);
  t.is(await ask("one more", 1), "");
  t.is(await ask("r0", 3), "");
  t.is(await ask("r1", 2), "the reading is over");
  for (let number = 0; number < recentsMax; number += 1) recent(one).stream.buffered = 1e9;
  t.is((await refusalOf(() => recent(one)))?.code, Status.RESOURCE_EXHAUSTED);
});
