// The index behind the time line: the actors at any moment, steps by trace and actor, gaps, and its memory.
import test from "ava";
import fc from "fast-check";
import {
  ActorFeed,
  ActorSnapshot,
  type ActorState,
  ActorStatus,
  ActorStep,
  RecordedSpan,
  TimelineAtRequest,
  TimelineOverviewRequest,
  TimelineStepsRequest,
} from "../../proto/gen/messages.ts";
import { actorsAt, overview, stepsOf, timelineMethods } from "../../runtime/recording/timeline.ts";
import { TimelineIndex } from "../../runtime/recording/timeline-index.ts";
import { madeFeeds, stateOf, stepOf } from "../fixtures/feed-history.ts";

const fromMs = 1_700_000_000_000;
const ample = { bytesMax: 2 ** 30, holdMs: 0, isRecording: true };

/** A process that sends numbered feeds. */
function feeder(index: TimelineIndex, process = "manager-m1") {
  let sequence = 0;
  return (atMs: number, fields: Partial<ActorFeed>, lostMessages = 0): void => {
    sequence += 1 + lostMessages;
    index.append(ActorFeed.create({ process, hostname: `host-${process}`, sequence, atMs: fromMs + atMs, ...fields }));
  };
}

const snapshotOf = (actors: readonly ActorState[], begins = true, ends = true): ActorSnapshot =>
  ActorSnapshot.create({ begins, ends, actors });
const at = (ms: number, index = 0): TimelineAtRequest => TimelineAtRequest.create({ atMs: fromMs + ms, index });
const actorsIn = (feeds: Iterable<ActorFeed>): readonly ActorState[] =>
  [...feeds].flatMap(({ snapshot }) => snapshot?.actors ?? []).toSorted((a, b) => (a.actor < b.actor ? -1 : 1));
const stepsFrom = (index: TimelineIndex, fields: Partial<TimelineStepsRequest>) =>
  stepsOf(index, TimelineStepsRequest.create({ limit: 100, ...fields })).steps;

test("an actor is shown as it was at a moment, with the context and the time that its states had then", (t) => {
  const index = new TimelineIndex(ample);
  const feed = feeder(index);
  feed(0, { snapshot: snapshotOf([stateOf("session/n1", 1, fromMs)]) });
  feed(10, { steps: [ActorStep.patch(stepOf("session/n1", 2, fromMs + 10), { context: '{"a":1}' })] });
  feed(20, { steps: [ActorStep.patch(stepOf("session/n1", 3, fromMs + 20), { context: "" })] });
  feed(30, { steps: [ActorStep.patch(stepOf("session/n1", 4, fromMs + 30), { states: stepOf("x", 3, 0).states })] });
  feed(40, { ended: ["session/n1"] });
  t.deepEqual(actorsIn(actorsAt(index, at(5))), [stateOf("session/n1", 1, fromMs)], "as in the snapshot");
  const [third] = actorsIn(actorsAt(index, at(20)));
  t.like(third, {
    actor: "session/n1",
    machine: "session",
    steps: 3,
    event: "session.resumed",
    context: '{"a":1}',
    startedAtMs: fromMs,
    sinceMs: fromMs + 20,
  });
  t.deepEqual(third?.states, ["serving.connected"]);
  const [fourth] = actorsIn(actorsAt(index, at(39)));
  t.is(fourth?.sinceMs, fromMs + 20, "a step that stays in its states does not change their time");
  t.is(fourth?.timers.length, 1);
  t.deepEqual(actorsIn(actorsAt(index, at(40))), [], "it has ended");
  const empty = [...actorsAt(index, at(40))];
  t.like(empty[0], { process: "manager-m1", hostname: "host-manager-m1", sequence: 1 });
  t.like(empty[0]?.snapshot, { begins: true, ends: true }, "its process is still known");
});

test("a context stays the same until a step tells another", (t) => {
  const index = new TimelineIndex(ample);
  const feed = feeder(index);
  const told = stateOf("session/n1", 1, fromMs);
  feed(0, { snapshot: snapshotOf([told]) });
  feed(10, { steps: [ActorStep.patch(stepOf("session/n1", 2, fromMs + 10), { context: "" })] });
  t.is(actorsIn(actorsAt(index, at(10)))[0]?.context, told.context);
  t.is(stepsFrom(index, {})[0]?.step?.context, "", "the step itself did not tell it");
});

test("a step's number names a moment between two steps of the same millisecond", (t) => {
  const index = new TimelineIndex(ample);
  const feed = feeder(index);
  feed(0, { snapshot: snapshotOf([stateOf("session/n1", 1, fromMs)]) });
  feed(10, { steps: [stepOf("session/n1", 2, fromMs + 10), stepOf("session/n1", 3, fromMs + 10)] });
  t.is(actorsIn(actorsAt(index, at(0, 1)))[0]?.steps, 2);
  t.is(actorsIn(actorsAt(index, at(10)))[0]?.steps, 3);
  t.throws(() => [...actorsAt(index, at(0, 3))], {
    message: /step 3 is outside of the recorded time \(steps 1 to 2\)/,
  });
  t.throws(() => [...actorsAt(index, at(11))], { message: /is outside of the recorded time/ });
  t.throws(() => [...actorsAt(index, at(-1))], { message: /is outside of the recorded time/ });
  t.throws(() => [...actorsAt(new TimelineIndex(ample), at(0))], { message: "nothing is recorded yet" });
});

test("in any history, each moment has the states that plain replaying finds", (t) => {
  const event = fc.record({
    actor: fc.constantFrom("a/1", "a/2", "b/1"),
    kind: fc.constantFrom("step", "step", "step", "end"),
    later: fc.integer({ min: 0, max: 5 }),
    context: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(event, { maxLength: 60 }), (events) => {
      const index = new TimelineIndex(ample);
      const feed = feeder(index);
      feed(0, { snapshot: snapshotOf([]) });
      const known = new Map<string, { steps: number; context: string }>();
      const expected: { readonly ms: number; readonly actors: readonly object[] }[] = [];
      let ms = 0;
      for (const { actor, kind, later, context } of events) {
        ms += later;
        if (kind === "end") {
          known.delete(actor);
          feed(ms, { ended: [actor] });
        } else {
          const before = known.get(actor);
          const steps = (before?.steps ?? 0) + 1;
          const told = context || before === undefined ? JSON.stringify({ actor, ms, steps }) : "";
          known.set(actor, { steps, context: told || (before?.context ?? "") });
          feed(ms, { steps: [ActorStep.patch(stepOf(actor, steps, fromMs + ms), { context: told })] });
        }
        const actors = [...known]
          .toSorted(([a], [b]) => (a < b ? -1 : 1))
          .map(([name, state]) => ({ actor: name, ...state }));
        // Only the last of a millisecond can be asked for by time.
        if (expected.at(-1)?.ms === ms) expected.pop();
        expected.push({ ms, actors });
      }
      for (const { ms: moment, actors } of expected) {
        const found = actorsIn(actorsAt(index, at(moment))).map(({ actor, steps, context }) => ({
          actor,
          steps,
          context,
        }));
        t.deepEqual(
          found,
          actors.map((each) => ({ ...each })),
        );
      }
    }),
  );
});

test("steps are found by actor and trace, in both directions", (t) => {
  const index = new TimelineIndex(ample);
  for (const feed of madeFeeds({ processes: 2, actors: 20, steps: 400, fromMs, toMs: fromMs + 4_000 }))
    index.append(feed);
  const all = stepsFrom(index, { limit: 1_000 });
  t.deepEqual(
    all.map((step) => step.index),
    Array.from({ length: 400 }, (_, number) => number + 1),
  );
  const times = all.map(({ step }) => step?.atMs ?? 0);
  t.deepEqual(
    times,
    times.toSorted((a, b) => a - b),
  );
  const ofActor = all.filter(({ process, step }) => process === "manager-m1" && step?.actor === "session/n3");
  t.deepEqual(stepsFrom(index, { process: "manager-m1", actor: "session/n3" }), ofActor);
  const traceId = ofActor[2]?.step?.traceId ?? "";
  t.deepEqual(
    stepsFrom(index, { traceId }),
    all.filter(({ step }) => step?.traceId === traceId),
  );
  t.deepEqual(stepsFrom(index, { index: 100, limit: 1 })[0]?.index, 101);
  t.deepEqual(
    stepsFrom(index, { index: 100, backward: true, limit: 2 }).map((step) => step.index),
    [98, 99],
  );
  const middle = times[200] ?? 0;
  t.is(stepsFrom(index, { atMs: middle, limit: 1 })[0]?.step?.atMs, middle);
  t.is(stepsFrom(index, { atMs: middle, backward: true, limit: 1 })[0]?.step?.atMs, middle);
  t.is(stepsFrom(index, { backward: true, limit: 1 })[0]?.index, 400, "without a moment, from the last");
  t.throws(() => stepsFrom(index, { limit: 0 }), { message: /invalid limit 0: expected 1 to 5000/ });
});

test("steps of a trace are also those that are linked to it", (t) => {
  const index = new TimelineIndex(ample);
  const feed = feeder(index);
  const [one, two, three] = ["1", "2", "3"].map((digit) => digit.repeat(32)) as [string, string, string];
  feed(0, { snapshot: snapshotOf([]) });
  const steps = [
    ActorStep.patch(stepOf("a/1", 1, fromMs + 1), { traceId: one }),
    ActorStep.patch(stepOf("a/1", 2, fromMs + 2), { traceId: "", linkedTraceIds: [two, one], linkedMore: 3 }),
    ActorStep.patch(stepOf("a/1", 3, fromMs + 3), { traceId: "", linkedTraceIds: [two] }),
    // The same hash as the first one's.
    ActorStep.patch(stepOf("a/1", 4, fromMs + 4), { traceId: "", linkedTraceIds: [`${one.slice(0, 31)}9`] }),
  ];
  feed(4, { steps });
  const numbers = (traceId: string) => stepsFrom(index, { traceId }).map(({ step }) => step?.number);
  t.deepEqual([numbers(one), numbers(two), numbers(three)], [[1, 2], [2, 3], []]);
  const [, linked = ActorStep.create()] = steps;
  t.deepEqual(stepsFrom(index, { traceId: two })[0]?.step, ActorStep.decode(ActorStep.encode(linked)));
});

test("a step is returned as it was appended, though its parts are kept apart", (t) => {
  const index = new TimelineIndex(ample);
  const feed = feeder(index);
  const step = ActorStep.create({
    ...stepOf("session/n1", 7, fromMs + 3),
    unexpected: true,
    skipped: 2,
    status: ActorStatus.ACTOR_FAILED,
    context: '{"größe":1}',
  });
  feed(0, { snapshot: snapshotOf([]) });
  feed(3, { steps: [step] });
  index.appendSpan(RecordedSpan.create({ spanId: step.spanId, name: "task create" }));
  const [found] = stepsFrom(index, {});
  t.deepEqual(found?.step, step);
  t.is(found?.spans[0]?.name, "task create");
});

test("the overview counts steps and troubles, and shows what is not known", (t) => {
  const index = new TimelineIndex(ample);
  const feed = feeder(index);
  feed(0, { snapshot: snapshotOf([stateOf("session/n1", 1, fromMs)]) });
  feed(1_000, { steps: [stepOf("session/n1", 2, fromMs + 1_000)] });
  feed(1_500, { steps: [ActorStep.patch(stepOf("session/n1", 3, fromMs + 1_500), { unexpected: true })] });
  feed(4_000, { steps: [stepOf("session/n1", 4, fromMs + 4_000)] }, 1);
  feed(6_000, { droppedSteps: 5 });
  feed(7_000, { lost: "the node is DOWN" });
  feed(9_000, { snapshot: snapshotOf([stateOf("session/n1", 9, fromMs)]) });
  feed(9_999, {});
  const whole = overview(index, TimelineOverviewRequest.create({ buckets: 10 }));
  t.like(whole, { fromMs, toMs: fromMs + 9_999, stepsTotal: 3, isRecording: true });
  t.deepEqual(whole.steps, [0, 2, 0, 0, 1, 0, 0, 0, 0, 0]);
  t.deepEqual(whole.troubles, [0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
  t.deepEqual(
    whole.gaps.map((gap) => [gap.fromMs - fromMs, gap.toMs - fromMs]),
    [[1_500, 9_000]],
    "a lost message, dropped steps and a lost process follow each other",
  );
  const part = overview(
    index,
    TimelineOverviewRequest.create({ buckets: 2, fromMs: fromMs + 1_200, toMs: fromMs + 1_599 }),
  );
  t.deepEqual(part.steps, [0, 1]);
  t.throws(() => overview(index, TimelineOverviewRequest.create({ buckets: 0 })), { message: /expected 1 to 4000/ });
  t.is([...actorsAt(index, at(8_000))][0]?.lost, "the node is DOWN");
  t.is(actorsIn(actorsAt(index, at(9_000)))[0]?.steps, 9);
});

test("a snapshot after lost messages is a gap only if the actors have moved on", (t) => {
  const index = new TimelineIndex(ample);
  const feed = feeder(index);
  feed(0, { snapshot: snapshotOf([stateOf("session/n1", 1, fromMs), stateOf("session/n2", 1, fromMs)]) });
  feed(2_000, { snapshot: snapshotOf([stateOf("session/n1", 1, fromMs), stateOf("session/n2", 1, fromMs)]) }, 5);
  const gaps = () => overview(index, TimelineOverviewRequest.create({ buckets: 1 })).gaps;
  t.deepEqual(gaps(), []);
  feed(4_000, { snapshot: snapshotOf([stateOf("session/n1", 1, fromMs)]) }, 5);
  t.deepEqual(
    gaps().map((gap) => [gap.fromMs - fromMs, gap.toMs - fromMs]),
    [[2_000, 4_000]],
  );
  t.is(actorsIn(actorsAt(index, at(4_000))).length, 1, "an actor that the snapshot lacks is gone");
});

test("T2: an actor that ended after a live snapshot, as a recording tells, does not come back with the snapshot", (t) => {
  const index = new TimelineIndex(ample);
  const kept = feeder(index);
  kept(0, { snapshot: snapshotOf([stateOf("session/n1", 1, fromMs), stateOf("call/1", 1, fromMs)]) });
  kept(20, { steps: [stepOf("session/n1", 2, fromMs + 20)], ended: ["call/1"] });
  const live = feeder(index);
  live(10, { snapshot: snapshotOf([stateOf("session/n1", 1, fromMs), stateOf("call/1", 1, fromMs)]) });
  live(30, { steps: [2, 3].map((number) => stepOf("session/n1", number, fromMs + 10 * number)) });
  t.deepEqual(index.gaps.within(fromMs, fromMs + 100), []);
  t.deepEqual(
    actorsIn(actorsAt(index, at(30))).map(({ actor }) => actor),
    ["session/n1"],
  );
  t.is(index.stepsTotal, 2);
});

test("a recording and a live feed that overlap count each step once", (t) => {
  const index = new TimelineIndex(ample);
  for (const from of [2, 2, 3]) {
    const feed = feeder(index);
    feed(from === 2 ? 0 : 3, { snapshot: snapshotOf([stateOf("session/n1", from - 1, fromMs)]) });
    feed(5, { steps: [from, from + 1].map((number) => stepOf("session/n1", number, fromMs + number)) });
  }
  t.deepEqual(
    stepsFrom(index, {}).map(({ step }) => step?.number),
    [2, 3, 4],
  );
});

test("steps of several processes are ordered by their times, as far as they wait for each other", (t) => {
  const index = new TimelineIndex({ ...ample, holdMs: 500 });
  const [one, two] = [feeder(index, "manager-m1"), feeder(index, "node-n1")];
  one(0, { snapshot: snapshotOf([]) });
  two(0, { snapshot: snapshotOf([]) });
  one(100, { steps: [10, 30, 50].map((ms, number) => stepOf("a/1", number + 1, fromMs + ms)) });
  two(110, { steps: [20, 40].map((ms, number) => stepOf("b/1", number + 1, fromMs + ms)) });
  t.is(index.stepsTotal, 0, "they wait");
  one(600, {});
  t.deepEqual(
    stepsFrom(index, {}).map(({ step }) => (step?.atMs ?? 0) - fromMs),
    [10, 20, 30, 40, 50],
  );
  two(700, { steps: [stepOf("b/1", 3, fromMs + 650)] });
  index.settle();
  t.is(index.stepsTotal, 6);
});

test("when its memory is used up, the oldest steps are dropped, and quiet actors stay known", (t) => {
  const index = new TimelineIndex({ ...ample, bytesMax: 24_000_000 });
  const quiet = feeder(index, "node-quiet");
  quiet(0, { snapshot: snapshotOf([stateOf("session/quiet", 1, fromMs)]) });
  quiet(0, { steps: [stepOf("session/quiet", 2, fromMs)] });
  for (const feed of madeFeeds({ processes: 1, actors: 50, steps: 200_000, fromMs, toMs: fromMs + 200_000 }))
    index.append(feed);
  t.true(index.memoryBytes < 26_000_000, `${index.memoryBytes} bytes`);
  const [first] = stepsFrom(index, { limit: 1 });
  t.true((first?.index ?? 0) > 50_000, `step ${first?.index} is the oldest`);
  t.true(index.fromMs > fromMs + 50_000);
  const known = actorsIn(actorsAt(index, TimelineAtRequest.create({ atMs: index.fromMs })));
  t.is(known.length, 51);
  t.like(
    known.find(({ actor }) => actor === "session/quiet"),
    { steps: 2, context: stepOf("session/quiet", 2, fromMs).context },
  );
  quiet(200_000, { steps: [ActorStep.patch(stepOf("session/quiet", 3, fromMs + 200_000), { context: "" })] });
  const [woken] = actorsIn(actorsAt(index, at(200_000))).filter(({ actor }) => actor === "session/quiet");
  t.like(woken, { steps: 3, context: stepOf("session/quiet", 2, fromMs).context });
  for (const { context } of known) t.not(context, "", "each context is known, though its segment was dropped");
});

test("T4: ever new actors of one process neither grow the index without end nor hide those of others", (t) => {
  const index = new TimelineIndex({ ...ample, bytesMax: 4_000_000, actorsMax: 500 });
  const [broken, other] = [feeder(index, "node-broken"), feeder(index)];
  other(0, { snapshot: snapshotOf([stateOf("session/n1", 1, fromMs)]) });
  broken(0, { snapshot: snapshotOf([]) });
  for (let ms = 1; ms <= 1_000; ms += 1) broken(ms, { steps: [stepOf(`session/new${ms}`, 1, fromMs + ms)] });
  other(1_001, { steps: [stepOf("session/n1", 2, fromMs + 1_001)] });
  const found = actorsIn(actorsAt(index, at(1_001)));
  t.is(found.length, 501);
  t.is(found.find(({ actor }) => actor === "session/n1")?.steps, 2);
  t.deepEqual(
    index.gaps.within(fromMs, fromMs + 2_000).map((gap) => [gap.process, gap.fromMs - fromMs, gap.toMs - fromMs]),
    [["node-broken", 500, 1_000]],
    "the steps of the others are a gap",
  );
  broken(1_100, { ended: ["session/new1"], steps: [] });
  broken(1_101, { steps: [stepOf("session/new1001", 1, fromMs + 1_101)] });
  t.is(actorsIn(actorsAt(index, at(1_101))).length, 501, "one that ends makes room");
});

test("T4: large states and long names of one process take half of the memory at most, and all of them count", (t) => {
  const bytesMax = 20_000_000;
  const index = new TimelineIndex({ ...ample, bytesMax });
  const [broken, other] = [feeder(index, "node-broken"), feeder(index)];
  other(0, { snapshot: snapshotOf([stateOf("session/n1", 1, fromMs)]) });
  const large = JSON.stringify({ text: "x".repeat(50_000) });
  for (let at = 0; at < 1_000; at += 1) {
    const state = { ...stateOf(`session/${at}`, 1, fromMs), context: large };
    broken(at, { snapshot: snapshotOf([state], at === 0, false) });
  }
  const listed = actorsIn(actorsAt(index, at(999)));
  t.true(listed.length > 20 && listed.length < 201, `${listed.length} actors`);
  for (let ms = 1_000; ms < 3_000; ms += 1) {
    const step = ActorStep.patch(stepOf(`${"long".repeat(2_000)}/${ms}`, 1, fromMs + ms), { context: large });
    broken(ms, { steps: [step], ended: ms % 2 === 0 ? [step.actor] : [] });
  }
  t.true(index.memoryBytes < bytesMax + 10_000_000, `${index.memoryBytes} bytes`);
  t.true(index.segments.length < 10, `${index.segments.length} segments`);
  other(3_000, { steps: [stepOf("session/n1", 2, fromMs + 3_000)] });
  t.is(actorsIn(actorsAt(index, at(3_000))).find(({ actor }) => actor === "session/n1")?.steps, 2);
});

test("T4: ended actors count as memory until their segment is dropped", (t) => {
  const index = new TimelineIndex({ ...ample, bytesMax: 12_000_000 });
  const broken = feeder(index, "node-broken");
  broken(0, { snapshot: snapshotOf([]) });
  for (let ms = 1; ms <= 60_000; ms += 1) {
    const actor = `call/${ms}`;
    broken(ms, { steps: [stepOf(actor, 1, fromMs + ms)], ended: [actor] });
  }
  t.true(index.fromMs > fromMs, "the oldest are dropped");
  t.true(index.memoryBytes < 22_000_000, `${index.memoryBytes} bytes`);
});

test("T4: parts that no other step shares do not fill the memory", (t) => {
  const index = new TimelineIndex({ ...ample, bytesMax: 40_000_000 });
  const broken = feeder(index, "node-broken");
  broken(0, { snapshot: snapshotOf([]) });
  for (let ms = 1; ms <= 3_000; ms += 1)
    broken(ms, {
      steps: [ActorStep.patch(stepOf("call/1", ms, fromMs + ms), { effects: [`${ms}`, "x".repeat(20_000)] })],
    });
  t.true(index.memoryBytes < 50_000_000, `${index.memoryBytes} bytes`);
  t.is(stepsFrom(index, { backward: true, limit: 1 })[0]?.step?.effects[0], "3000");
});

test("T4: times that cannot be true are taken for the nearest that can, and leave the others in their order", (t) => {
  const bounds = () => ({ fromMs, toMs: fromMs + 2_000 });
  const index = new TimelineIndex({ ...ample, holdMs: 500, bounds });
  const [broken, one, two] = [feeder(index, "node-broken"), feeder(index), feeder(index, "manager-m2")];
  broken(-fromMs, { snapshot: snapshotOf([]) });
  for (const send of [one, two]) send(0, { snapshot: snapshotOf([]) });
  broken(1e12, { steps: [stepOf("a/1", 1, fromMs + 1e12)] });
  one(1_300, { steps: [stepOf("b/1", 1, fromMs + 1_300)] });
  two(1_310, { steps: [stepOf("c/1", 1, fromMs + 1_290)] });
  index.settle();
  t.deepEqual([index.fromMs - fromMs, index.toMs - fromMs], [0, 2_000]);
  t.deepEqual(
    stepsFrom(index, {}).map(({ step }) => step?.actor),
    ["c/1", "b/1", "a/1"],
  );
  t.is(stepsFrom(index, { atMs: fromMs + 1_400, limit: 1 })[0]?.step?.actor, "a/1");
});

test("the Timeline service's methods answer encoded requests", (t) => {
  const index = new TimelineIndex(ample);
  for (const feed of madeFeeds({ processes: 1, actors: 1_200, steps: 10, fromMs, toMs: fromMs + 10 }))
    index.append(feed);
  const methods = timelineMethods(index);
  t.deepEqual(
    [...methods.keys()],
    ["Overview", "At", "Steps"].map((name) => `/muster.v1.Timeline/${name}`),
  );
  const feeds = [...(methods.get("/muster.v1.Timeline/At")?.(TimelineAtRequest.encode(at(10))) ?? [])].map((bytes) =>
    ActorFeed.decode(bytes),
  );
  t.deepEqual(
    feeds.map(({ sequence, snapshot }) => [sequence, snapshot?.begins, snapshot?.ends, snapshot?.actors.length]),
    [
      [1, true, false, 500],
      [2, false, false, 500],
      [3, false, true, 200],
    ],
  );
});
