// Steps of a recording that cannot be verified: they are counted, and neither end the verification nor differ.
import test from "ava";
import { setup } from "xstate";
import { verify } from "../../cli/replay/verify.ts";
import { ActorFeed, ActorSnapshot, ActorState, ActorStep } from "../../proto/gen/messages.ts";
import { TimelineIndex } from "../../runtime/recording/timeline-index.ts";

const lamp = Object.assign(
  setup({ types: { context: {} as { count: number }, events: {} as { type: "toggled" } } }).createMachine({
    id: "lamp",
    context: { count: 1 },
    initial: "off",
    states: { off: { on: { toggled: "on" } }, on: {} },
  }),
  { schemas: { shows: { context: ["count"], events: [] } } },
);

/** A lamp that was switched on, with the contexts before and after it. */
function recorded(before: string, after: string): TimelineIndex {
  const index = new TimelineIndex({ bytesMax: 2 ** 24, holdMs: 0, isRecording: true });
  const actor = { actor: "lamp/1", machine: "lamp" };
  const state = ActorState.create({ ...actor, states: ["off"], context: before, steps: 1 });
  const snapshot = ActorSnapshot.create({ begins: true, ends: true, actors: [state] });
  index.append(ActorFeed.create({ process: "manager-m1", sequence: 1, atMs: 1_000, snapshot }));
  const step = ActorStep.create({ ...actor, number: 2, atMs: 1_001, event: "toggled", states: ["on"], context: after });
  index.append(ActorFeed.create({ process: "manager-m1", sequence: 2, atMs: 1_001, steps: [step] }));
  return index;
}

const reasonsOf = (before: string, after: string) => {
  const { charts, first } = verify(recorded(before, after), new Map([["lamp", lamp as never]]));
  return { part: first?.part, unknown: charts.flatMap(({ unknown }) => [...unknown]) };
};

test("a context that cannot be read, before a step or after it, is counted", (t) => {
  const counted = { part: undefined, unknown: [["fields that cannot be read", 1]] };
  t.deepEqual(reasonsOf("{", ""), counted as never);
  t.deepEqual(reasonsOf('{"count":1}', "{"), counted as never);
  t.deepEqual(reasonsOf('{"count":1}', '{"count":{"$bigint":"x"}}'), counted as never);
});

test("a context that was cut, before a step or after it, is counted", (t) => {
  const counted = { part: undefined, unknown: [["a field that was cut", 1]] };
  t.deepEqual(reasonsOf('{"$cut":true}', ""), counted as never);
  t.deepEqual(reasonsOf('{"count":1}', '{"$cut":true}'), counted as never);
});

test("the same step with contexts that can be read is compared", (t) => {
  t.deepEqual(reasonsOf('{"count":1}', '{"count":2}'), { part: "transitions", unknown: [] });
});
