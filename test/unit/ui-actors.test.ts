// The page's model of the actors: snapshots, steps, gaps, and who is stuck.
import test from "ava";
import { ActorFeed, ActorSnapshot, ActorState, ActorStep, ArmedTimer } from "../../proto/gen/page.ts";
import { Actors, watchedStepsMax } from "../../proto/feed/actors.ts";
import { hashOf, routeOf } from "../../ui/model/route.ts";
import { outside, sequenceOf } from "../../ui/model/sequence.ts";
import { stuckActors, overdueGraceMs } from "../../proto/feed/stuck.ts";
import { rowsOf } from "../../ui/model/tree.ts";

const process = "manager-m1";
const now = 1_000_000;

function state(actor: string, fields: Partial<ActorState> = {}): ActorState {
  return ActorState.create({ actor, machine: "session", states: ["serving.connected"], steps: 1, ...fields });
}
function step(actor: string, number: number, fields: Partial<ActorStep> = {}): ActorStep {
  return ActorStep.create({ actor, machine: "session", number, atMs: now, event: "e", states: ["suspect"], ...fields });
}
function feeder(actors: Actors) {
  let sequence = 0;
  return {
    skip: () => void (sequence += 1),
    feed: (fields: Partial<ActorFeed>) =>
      actors.apply(ActorFeed.create({ process, sequence: ++sequence, atMs: now, ...fields }), now),
    snapshot(...states: readonly ActorState[]) {
      this.feed({ snapshot: ActorSnapshot.create({ begins: true, ends: true, actors: states }) });
    },
  };
}
const countsOf = (actors: Actors, kind: string) =>
  [...(actors.processes.get(process)?.counts.get(kind) ?? [])].toSorted(([a], [b]) => a.localeCompare(b));

test("a snapshot in parts replaces the actors when its last part has come", (t) => {
  const actors = new Actors();
  const from = feeder(actors);
  from.snapshot(state("session/old"));
  from.feed({ snapshot: ActorSnapshot.create({ begins: true, actors: [state("session/n1")] }) });
  t.not(actors.find(process, "session/old"), undefined);
  from.feed({ steps: [step("session/n1", 2)] });
  from.feed({ snapshot: ActorSnapshot.create({ ends: true, actors: [state("session/n2")] }) });
  t.is(actors.find(process, "session/old"), undefined);
  t.deepEqual(actors.find(process, "session/n1")?.states, ["suspect"], "with the steps between its parts");
  t.deepEqual(countsOf(actors, "session"), [
    ["serving.connected", 1],
    ["suspect", 1],
  ]);
});

test("U2: steps and ends move the counts, and a step older than the snapshot changes nothing", (t) => {
  const actors = new Actors();
  const from = feeder(actors);
  from.snapshot(state("session/n1"), state("session/n2", { steps: 9 }));
  from.feed({ steps: [step("session/n1", 2), step("session/n2", 8), step("session/n3", 1)] });
  t.deepEqual(countsOf(actors, "session"), [
    ["serving.connected", 1],
    ["suspect", 2],
  ]);
  from.feed({ ended: ["session/n1", "session/n2"] });
  t.deepEqual(countsOf(actors, "session"), [["suspect", 1]]);
  t.is(actors.size, 1);
});

test("U1: a lost message marks the process until a whole snapshot has come", (t) => {
  const actors = new Actors();
  const from = feeder(actors);
  const of = () => actors.processes.get(process);
  from.snapshot(state("session/n1"));
  t.false(of()?.stale);
  from.skip();
  from.feed({ steps: [step("session/n1", 2)], droppedSteps: 7 });
  t.like(of(), { stale: true, gaps: 1, droppedSteps: 7 });
  from.feed({ snapshot: ActorSnapshot.create({ begins: true, actors: [state("session/n1")] }) });
  from.skip();
  from.feed({ snapshot: ActorSnapshot.create({ ends: true, actors: [] }) });
  t.like(of(), { stale: true, gaps: 2 }, "not by a snapshot with a hole");
  from.snapshot(state("session/n1"));
  t.false(of()?.stale);
  from.feed({ lost: "the node is away" });
  t.like(of(), { stale: true, lost: "the node is away" });
  from.snapshot();
  t.like(of(), { stale: false, lost: "" });
});

test("a lost connection marks every process, and its next snapshot clears that", (t) => {
  const actors = new Actors();
  feeder(actors).snapshot(state("session/n1"));
  actors.disconnected();
  t.like(actors.processes.get(process), { stale: true, gaps: 1 });
  feeder(actors).snapshot(state("session/n1"));
  t.like(actors.processes.get(process), { stale: false, gaps: 1 });
});

test("the newest steps of a watched actor are kept, from before it was watched, too", (t) => {
  const actors = new Actors();
  const from = feeder(actors);
  from.snapshot(state("session/n1"));
  from.feed({ steps: [step("session/n1", 2), step("session/n2", 1)] });
  actors.watch(process, "session/n1");
  t.deepEqual(
    actors.stepsOf(process, "session/n1").map(({ number }) => number),
    [2],
  );
  for (let number = 3; number <= watchedStepsMax + 10; number += 1) from.feed({ steps: [step("session/n1", number)] });
  const numbers = actors.stepsOf(process, "session/n1").map(({ number }) => number);
  t.is(numbers.length, watchedStepsMax);
  t.is(numbers[0], 11);
  t.is(numbers.at(-1), watchedStepsMax + 10);
});

test("an actor is stuck when its timer is overdue by the clock of its process; the longest is first", (t) => {
  const actors = new Actors();
  const from = feeder(actors);
  const timer = (dueAtMs: number) => [ArmedTimer.create({ delay: "grace", dueAtMs })];
  from.feed({
    atMs: now + 5_000,
    snapshot: ActorSnapshot.create({
      begins: true,
      ends: true,
      actors: [
        state("session/fine", { timers: timer(now + 5_000 - overdueGraceMs) }),
        state("session/late", { timers: timer(now + 4_999 - overdueGraceMs) }),
        state("session/later", { timers: timer(now) }),
      ],
    }),
  });
  t.deepEqual(
    stuckActors(actors, now).map(({ id }) => id),
    ["session/later", "session/late"],
  );
  actors.disconnected();
  t.deepEqual(stuckActors(actors, now), [], "only current actors count");
});

test("the tree lists what is stuck, processes, kinds and actors, and a search opens what is closed", (t) => {
  const actors = new Actors();
  feeder(actors).snapshot(state("session/n2"), state("session/n1"), state("lease", { states: ["leading"] }));
  const keys = (text: string, closed: readonly string[] = []) =>
    rowsOf(actors, [], { text, onlyStuck: false }, new Set(closed)).map((row) =>
      row.type === "actor" ? row.actor.id : row.type === "kind" ? `${row.kind}:${row.size}` : row.type,
    );
  t.deepEqual(keys(""), ["process", "lease:1", "lease", "session:2", "session/n1", "session/n2"]);
  t.deepEqual(keys("", [`kind\n${process}\nsession`]), ["process", "lease:1", "lease", "session:2"]);
  t.deepEqual(keys("CONNECTED n2", [`process\n${process}`]), ["process", "session:1", "session/n2"]);
});

test("the address names view and actor, with any characters", (t) => {
  const route = { view: "actor", process: "node-1", actor: "task/a b/%?" } as const;
  t.deepEqual(routeOf(hashOf(route, null)), route);
  t.deepEqual(routeOf("#/actor/only"), { view: "actors" });
  t.deepEqual(routeOf("#/actor/%zz/x"), { view: "actors" });
});

test("a sequence has the messages of one trace, in the order of their times", (t) => {
  const steps = [
    { process, step: step("b", 1, { atMs: 2, traceId: "t", source: "a" }) },
    { process, step: step("c", 1, { atMs: 3, traceId: "other" }) },
    { process, step: step("a", 1, { atMs: 1, traceId: "t" }) },
  ];
  const { lanes, messages } = sequenceOf(steps, "t");
  t.deepEqual(lanes, [outside, `${process} a`, `${process} b`]);
  t.deepEqual(
    messages.map(({ from, to }) => [from, to]),
    [
      [outside, `${process} a`],
      [`${process} a`, `${process} b`],
    ],
  );
});

test("U3: actors beyond the number that a process may have are not listed, until a snapshot without them", (t) => {
  const actors = new Actors({ actorsMax: 2, charactersMax: 10_000 });
  const from = feeder(actors);
  from.snapshot(state("session/n1"), state("session/n2"), state("session/n3"));
  const listed = (): readonly string[] => [...(actors.processes.get(process)?.actors.keys() ?? [])];
  t.deepEqual(listed(), ["session/n1", "session/n2"]);
  t.true(actors.processes.get(process)?.actors.isFull);
  from.feed({ steps: [step("session/n4", 1)], snapshot: ActorSnapshot.create({ actors: [state("session/n5")] }) });
  t.deepEqual(listed(), ["session/n1", "session/n2"]);
  t.deepEqual(countsOf(actors, "session"), [["serving.connected", 2]]);
  from.feed({ ended: ["session/n1"], steps: [] });
  from.feed({ steps: [step("session/n4", 2)] });
  t.deepEqual(listed(), ["session/n2", "session/n4"], "one has ended");
  from.snapshot(state("session/n1"));
  t.false(actors.processes.get(process)?.actors.isFull);
});

test("U3: texts beyond the length that a process may have are cut, and given back when they shrink", (t) => {
  const actors = new Actors({ actorsMax: 10, charactersMax: 1_000 });
  const from = feeder(actors);
  const long = JSON.stringify("x".repeat(600));
  const contextOf = (id: string) => actors.find(process, id)?.context;
  from.snapshot(state("session/n1", { context: long }), state("session/n2"), state("session/n3", { context: long }));
  t.is(contextOf("session/n1"), long);
  t.is(contextOf("session/n3"), undefined, "a new one is not listed");
  from.feed({ steps: [step("session/n2", 2, { context: long })] });
  t.is(contextOf("session/n2"), '{"$cut":true}', "a listed one goes on without its context");
  t.deepEqual(actors.find(process, "session/n2")?.states, ["suspect"]);
  from.feed({ steps: [step("session/n1", 2, { context: "{}" }), step("session/n2", 3, { context: long })] });
  t.is(contextOf("session/n2"), long, "the first one's room is free again");
  from.feed({ snapshot: ActorSnapshot.create({ actors: [state("session/n1", { context: long, steps: 3 })] }) });
  t.is(contextOf("session/n1"), '{"$cut":true}', "also as a whole state");
  from.feed({ ended: ["session/n2"] });
  from.feed({ steps: [step("session/n9", 1, { context: long })] });
  t.is(contextOf("session/n9"), long, "an ended one's room is free");
});
