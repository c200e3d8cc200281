import test from "ava";
import { assign } from "xstate";
import { createProcessFeed, type FeedListener } from "../../actors/inspection/process-feed.ts";
import { messageBytesMax } from "../../actors/inspection/feed-line.ts";
import { chart, effect } from "../../machines/chart.ts";
import {
  ActorFeed,
  ActorSelection,
  ActorStatus,
  type ActorState,
  ActorStep,
  RecordingPart,
} from "../../proto/gen/messages.ts";
import { RecordingRing } from "../../runtime/recording/ring.ts";
import { Host, type HostedActor } from "../../runtime/host.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { createSimTelemetry } from "../../runtime/sim/telemetry.ts";
import { SimTrace } from "../../runtime/sim/trace.ts";

interface CounterContext {
  readonly count: number;
  readonly secret: string;
}
type CounterEvent =
  | { readonly type: "counted"; readonly by: number; readonly password: string }
  | { readonly type: "ended" }
  | { readonly type: "looked" };

const counterMachine = chart({
  types: { context: {} as CounterContext, events: {} as CounterEvent, input: {} as { readonly secret: string } },
  effects: { tell: effect<{ count: number }>() },
  actions: { add: assign({ count: ({ context, event }) => context.count + ("by" in event ? event.by : 0) }) },
  delays: { idle: 60_000 },
  shows: { context: ["count"], events: ["by"] },
}).createMachine({
  id: "counter",
  context: ({ input }) => ({ count: 0, secret: input.secret }),
  initial: "counting",
  states: {
    counting: {
      after: { idle: "idling" },
      on: {
        counted: { actions: ["add", { type: "tell", params: ({ context }) => ({ count: context.count }) }] },
        ended: "over",
      },
    },
    idling: { on: { counted: "counting" } },
    over: { type: "final" },
  },
  ignore: ["looked"],
});

type Counter = HostedActor<typeof counterMachine>;

interface World {
  readonly clock: SimClock;
  readonly host: Host;
  readonly feed: ReturnType<typeof createProcessFeed>;
  start(id: string): Counter;
}

function newWorld(pendingMax?: number): World {
  const clock = new SimClock();
  const random = new SimRandom("feed");
  const telemetry = createSimTelemetry({
    who: "host",
    random,
    trace: new SimTrace(clock, { keepLines: false }),
  });
  const host = new Host({ clock, telemetry, onCrash: () => {} });
  const feed = createProcessFeed({
    host,
    clock,
    telemetry,
    process: "manager-m1",
    hostname: "host-1",
    ...(pendingMax === undefined ? {} : { pendingMax }),
  });
  const start = (id: string): Counter =>
    host.start(counterMachine, id, { secret: "canary" }, { effects: { tell() {} } });
  return { clock, host, feed, start };
}

interface TextContext {
  readonly text: string;
}

/** Shows a text of any length. */
const textMachine = chart({
  types: {
    context: {} as TextContext,
    events: {} as { readonly type: "told"; readonly text: string; readonly own: string },
    input: {} as TextContext,
  },
  actions: { remember: assign({ text: ({ event }) => event.text }) },
  shows: { context: ["text"], events: ["own"] },
}).createMachine({
  id: "text",
  context: ({ input }) => input,
  initial: "listening",
  states: { listening: { on: { told: { actions: "remember" } } } },
});

class Listener implements FeedListener {
  readonly feeds: ActorFeed[] = [];
  isReady = true;

  ready(): boolean {
    return this.isReady;
  }

  onFeed(feed: ActorFeed): void {
    this.feeds.push(feed);
  }

  get steps(): readonly ActorStep[] {
    return this.feeds.flatMap(({ steps }) => steps);
  }

  get states(): readonly ActorState[] {
    return this.feeds.flatMap(({ snapshot }) => snapshot?.actors ?? []);
  }

  get ended(): readonly string[] {
    return this.feeds.flatMap(({ ended }) => ended);
  }

  get dropped(): number {
    return this.feeds.reduce((sum, { droppedSteps }) => sum + droppedSteps, 0);
  }
}

const everything = ActorSelection.create();
const count = (by = 1): CounterEvent => ({ type: "counted", by, password: "canary" });

test("a listener gets a snapshot, then steps in batches, with sequence numbers and only shown fields", (t) => {
  const { clock, feed, start } = newWorld();
  const first = start("counter/1");
  const from = clock.now();
  first.send(count());
  const listener = new Listener();
  feed.listen(everything, listener);
  t.deepEqual(listener.feeds, [], "nothing is sent within the call");
  clock.advance(50);
  t.like(listener.feeds, [
    { process: "manager-m1", hostname: "host-1", sequence: 1, atMs: from + 50, snapshot: { begins: true, ends: true } },
  ]);
  t.like(listener.states, [
    { actor: "counter/1", machine: "counter", states: ["counting"], context: `{"count":1}`, startedAtMs: from },
  ]);
  first.send(count(2));
  first.send({ type: "looked" });
  const second = start("counter/2");
  t.is(listener.feeds.length, 1);
  clock.advance(50);
  t.is(listener.feeds.length, 2);
  t.is(listener.feeds[1]?.sequence, 2);
  t.like(listener.steps, [
    {
      actor: "counter/1",
      number: 1,
      event: "counted",
      fields: `{"by":2}`,
      context: `{"count":3}`,
      transitions: ["counting#counted#0"],
      effects: ["add", "tell"],
    },
    { actor: "counter/1", number: 2, event: "looked", fields: "{}", context: "", transitions: ["#looked#0"] },
    { actor: "counter/2", number: 1, event: "xstate.init", fields: "{}", context: `{"count":0}` },
  ]);
  t.deepEqual(
    listener.steps[2]?.timers.map(({ delay, state, dueAtMs }) => [delay, state, dueAtMs]),
    [["idle", "counting", from + 60_050]],
  );
  second.send({ type: "ended" });
  first.stop();
  clock.advance(50);
  t.deepEqual(
    listener.steps.slice(3).map(({ status }) => status),
    [ActorStatus.ACTOR_DONE, ActorStatus.ACTOR_STOPPED],
  );
  t.deepEqual(listener.ended, ["counter/2", "counter/1"]);
  t.false(JSON.stringify(listener.feeds).includes("canary"));
});

test("without a listener nothing observes the host, and none of its timers runs (PF1)", (t) => {
  const { clock, host, feed, start } = newWorld();
  start("counter/1");
  t.is(host.look("counter/1"), undefined);
  const listener = new Listener();
  const [one, other] = [feed.listen(everything, listener), feed.listen(everything, listener)];
  t.not(host.look("counter/1"), undefined);
  one.close();
  one.close();
  t.not(host.look("counter/1"), undefined);
  other.close();
  t.is(host.look("counter/1"), undefined);
  clock.advance(1_000);
  t.deepEqual(listener.feeds, []);
});

test("a recorder gets the actors at once and each step as it happens, with the same messages as a listener (PF4)", (t) => {
  const { clock, host, feed, start } = newWorld();
  const first = start("counter/1");
  first.send(count());
  const seen: (ActorFeed | ActorStep)[] = [];
  const recording = feed.record({
    onFeed: (message) => seen.push(message),
    onStep: (step) => seen.push(step),
    onMissing: () => t.fail("each step can be shown"),
  });
  t.deepEqual(
    seen.map((message) => "snapshot" in message && message.snapshot?.actors.map(({ context }) => context)),
    [[`{"count":1}`]],
  );
  const listener = new Listener();
  const handle = feed.listen(everything, listener);
  clock.advance(50);
  first.send(count(2));
  t.is(seen.length, 2, "no timer has to fire");
  start("counter/2").send({ type: "ended" });
  clock.advance(50);
  const steps = seen.slice(1).map((message) => ActorStep.create(message as ActorStep));
  t.deepEqual(
    steps.map(({ actor, event, context, timers }) => [actor, event, context, timers.length]),
    [
      ["counter/1", "counted", `{"count":3}`, 1],
      ["counter/2", "xstate.init", `{"count":0}`, 1],
      ["counter/2", "ended", "", 0],
    ],
  );
  t.deepEqual(steps, listener.steps);
  handle.close();
  t.not(host.look("counter/1"), undefined, "the recorder is left");
  first.send(count());
  t.is(seen.length, 5);
  recording.unsubscribe();
  t.is(host.look("counter/1"), undefined);
  first.send(count());
  t.is(seen.length, 5);
});

test("a selection has actors by id or by kind", (t) => {
  const { clock, feed, start } = newWorld();
  for (const id of ["counter/1", "counter/10", "meter/1", "lease"]) start(id);
  const chosen = (...actors: string[]): readonly string[] => {
    const listener = new Listener();
    const handle = feed.listen(ActorSelection.create({ actors }), listener);
    clock.advance(50);
    handle.close();
    return listener.states.map(({ actor }) => actor);
  };
  t.deepEqual(chosen("counter/1"), ["counter/1"]);
  t.deepEqual(chosen("counter/", "lease"), ["counter/1", "counter/10", "lease"]);
  t.deepEqual(chosen("nothing/"), []);
});

test("a listener that is not ready gets nothing, and later the newest step of each actor with the number of those before (FL2, PS1)", (t) => {
  const { clock, feed, start } = newWorld(10);
  const [first, second] = [start("counter/1"), start("counter/2")];
  const listener = new Listener();
  feed.listen(everything, listener);
  clock.advance(50);
  listener.isReady = false;
  second.send(count(5));
  for (let sent = 0; sent < 14; sent += 1) {
    first.send(count());
    clock.advance(50);
  }
  first.send({ type: "looked" });
  t.is(listener.feeds.length, 1);
  listener.isReady = true;
  clock.advance(50);
  const kept = listener.steps.map(({ actor, number, skipped, context }) => [actor, number, skipped, context]);
  t.deepEqual(kept[0], ["counter/2", 1, 0, `{"count":5}`]);
  t.deepEqual(kept[1], ["counter/1", 9, 8, `{"count":9}`]);
  t.deepEqual(kept.at(-1), ["counter/1", 15, 0, ""]);
  t.is(listener.dropped, 8);
  t.is(listener.steps.length + listener.dropped, 16);
  t.deepEqual(
    listener.feeds.map(({ sequence }) => sequence),
    [1, 2],
  );
});

test("a kept step has the context that a dropped one changed", (t) => {
  const { clock, feed, start } = newWorld(4);
  const first = start("counter/1");
  const listener = new Listener();
  feed.listen(everything, listener);
  clock.advance(50);
  listener.isReady = false;
  first.send(count());
  for (let sent = 0; sent < 3; sent += 1) first.send({ type: "looked" });
  first.send({ type: "looked" });
  listener.isReady = true;
  clock.advance(50);
  t.like(listener.steps, [
    { number: 4, skipped: 3, context: `{"count":1}` },
    { number: 5, skipped: 0, context: "" },
  ]);
});

test("the end of an actor is not dropped, and comes before a later actor with its id (PS2)", (t) => {
  const { clock, feed, start } = newWorld(6);
  const first = start("counter/1");
  const listener = new Listener();
  feed.listen(everything, listener);
  clock.advance(50);
  listener.isReady = false;
  first.send(count());
  first.stop();
  const next = start("counter/1");
  for (let sent = 0; sent < 5; sent += 1) next.send(count());
  listener.isReady = true;
  clock.advance(50);
  t.deepEqual(
    listener.feeds.slice(1).map(({ ended, steps }) => [ended, steps.map(({ number, skipped }) => [number, skipped])]),
    [
      [["counter/1"], []],
      [
        [],
        [
          [4, 3],
          [5, 0],
          [6, 0],
        ],
      ],
    ],
  );
  // Also without drops.
  next.stop();
  start("counter/1");
  clock.advance(50);
  t.deepEqual(
    listener.feeds.slice(3).map(({ ended, steps }) => [ended, steps.map(({ number, event }) => [number, event])]),
    [
      [["counter/1"], [[7, "xstate.stop"]]],
      [[], [[1, "xstate.init"]]],
    ],
  );
});

test("when too many actors move for a slow listener, it gets a snapshot instead, and the number of steps it lacks", (t) => {
  const { clock, feed, start } = newWorld(10);
  const actors = Array.from({ length: 20 }, (_, at) => start(`counter/${at}`));
  const listener = new Listener();
  feed.listen(everything, listener);
  clock.advance(50);
  listener.isReady = false;
  for (const actor of actors) actor.send(count());
  clock.advance(200);
  listener.isReady = true;
  clock.advance(50);
  t.deepEqual(listener.steps, []);
  t.is(listener.dropped, 20);
  t.like(listener.feeds[1], { sequence: 2, snapshot: { begins: true, ends: true } });
  t.true(listener.states.slice(20).every(({ context }) => context === `{"count":1}`));
});

test("a snapshot comes in parts while actors move, end and start, and nothing is missing or twice (FL3)", (t) => {
  const { clock, feed, start } = newWorld();
  const actors = Array.from({ length: 2_600 }, (_, at) => start(`counter/${at}`));
  const listener = new Listener();
  const handle = feed.listen(everything, listener);
  clock.advance(50);
  // Some are in the snapshot already, some are not.
  const [early, late, gone] = [actors[0], actors[2_500], actors[2_501]];
  early?.send(count(1));
  late?.send(count(2));
  gone?.stop();
  start("counter/new");
  clock.advance(200);
  const parts = listener.feeds.flatMap(({ snapshot }) => (snapshot === null ? [] : [snapshot]));
  t.deepEqual(parts.map(({ begins }) => begins).indexOf(true), 0);
  t.is(parts.filter(({ begins }) => begins).length, 1);
  t.deepEqual(parts.map(({ ends }) => ends).indexOf(true), parts.length - 1);
  t.is(new Set(listener.states.map(({ actor }) => actor)).size, 2_599);
  t.is(listener.states.length, 2_599);
  t.is(listener.states.find(({ actor }) => actor === "counter/2500")?.context, `{"count":2}`);
  t.deepEqual(
    listener.steps.map(({ actor }) => actor),
    ["counter/0", "counter/new"],
  );
  const ends = listener.feeds.findIndex(({ snapshot }) => snapshot?.ends === true);
  t.true(listener.feeds.findIndex(({ steps }) => steps.length > 0) > ends, "steps follow the snapshot");
  handle.again();
  clock.advance(300);
  t.is(listener.states.length, 2 * 2_600 - 1);
  t.deepEqual(
    listener.feeds.map(({ sequence }) => sequence),
    listener.feeds.map((_, at) => at + 1),
  );
});

test("without steps, a changed actor is sent again at most once a second, and its end soon", (t) => {
  const { clock, feed, start } = newWorld();
  const [first, second] = [start("counter/1"), start("counter/2")];
  const listener = new Listener();
  feed.listen(ActorSelection.create({ withoutSteps: true }), listener);
  clock.advance(50);
  for (let sent = 0; sent < 100; sent += 1) {
    first.send(count());
    clock.advance(20);
  }
  t.deepEqual(listener.steps, []);
  const again = listener.states.slice(2);
  t.true(again.length >= 2 && again.length <= 3, `${again.length}`);
  second.stop();
  clock.advance(50);
  t.deepEqual(listener.ended, ["counter/2"]);
  clock.advance(1_000);
  t.is(listener.states.at(-1)?.context, `{"count":100}`);
  t.true(listener.feeds.slice(1).every(({ snapshot }) => snapshot === null || (!snapshot.begins && !snapshot.ends)));
});

test("a listener that throws is closed, and others go on (PF3)", (t) => {
  const { clock, host, feed, start } = newWorld();
  const first = start("counter/1");
  const listener = new Listener();
  feed.listen(everything, {
    ready: () => true,
    onFeed() {
      throw new Error("broken listener");
    },
  });
  const handle = feed.listen(everything, listener);
  clock.advance(50);
  first.send(count());
  clock.advance(50);
  t.is(listener.steps.length, 1);
  handle.close();
  t.is(host.look("counter/1"), undefined, "the broken one does not count");
});

test("the last step of an actor that throws is sent at once: the process ends", (t) => {
  const { clock, host, feed } = newWorld();
  const tell = (): void => {
    throw new Error("broken");
  };
  const first = host.start(counterMachine, "counter/1", { secret: "" }, { effects: { tell } });
  const listener = new Listener();
  feed.listen(everything, listener);
  clock.advance(50);
  first.send(count());
  t.like(listener.steps, [{ actor: "counter/1", event: "counted", status: ActorStatus.ACTOR_FAILED }]);
});

const sizes = ({ feeds }: Listener): readonly number[] => feeds.map((feed) => ActorFeed.encode(feed).length);

test("FL4: messages are bounded by bytes, in snapshots and with and without steps, and nothing is left out", (t) => {
  const { clock, feed, host } = newWorld();
  const text = "é".repeat(7_000);
  const actors = Array.from({ length: 100 }, (_, at) =>
    host.start(textMachine, `text/${at}`, { text }, { effects: {} }),
  );
  const [listener, withoutSteps] = [new Listener(), new Listener()];
  feed.listen(everything, listener);
  feed.listen(ActorSelection.create({ withoutSteps: true }), withoutSteps);
  clock.advance(1_000);
  t.is(listener.states.length, 100);
  for (const [at, actor] of actors.entries()) actor.send({ type: "told", text: `${at}${text}`, own: text });
  clock.advance(5_000);
  t.deepEqual(
    listener.steps.map(({ actor }) => actor),
    actors.map(({ id }) => id),
  );
  t.is(withoutSteps.states.length, 200);
  for (const each of [listener, withoutSteps]) {
    t.true(Math.max(...sizes(each)) <= messageBytesMax, sizes(each).join(" "));
    t.true(Math.min(...sizes(each).slice(0, 3)) > messageBytesMax / 2, "they are filled");
    t.deepEqual(
      each.feeds.map(({ sequence }) => sequence),
      each.feeds.map((_, at) => at + 1),
    );
    t.true(each.states.every(({ context }) => context === JSON.stringify({ text })) || each === withoutSteps);
  }
});

test("FL4: a step that is too large for a message is shown without its context, and says so", (t) => {
  const { clock, feed, host } = newWorld();
  // Each of these characters has six in JSON.
  const text = "\u0001".repeat(16_000);
  const actor = host.start(textMachine, "text/1", { text: "" }, { effects: {} });
  const listener = new Listener();
  feed.listen(everything, listener);
  const ring = new RecordingRing();
  feed.record(ring);
  clock.advance(50);
  actor.send({ type: "told", text, own: text });
  actor.send({ type: "told", text, own: text });
  actor.send({ type: "told", text: "short", own: "" });
  clock.advance(50);
  const [large, , next] = listener.steps;
  t.is(large?.context, `{"$cut":true}`);
  t.true(large?.fields === JSON.stringify({ own: text }));
  t.like(large, { event: "told", transitions: ["listening#told#0"], states: ["listening"] });
  t.is(next?.context, `{"text":"short"}`);
  t.true(Math.max(...sizes(listener)) <= messageBytesMax);
  const kept = Array.from(ring.parts(0), (part) => RecordingPart.decode(part).feed as ActorFeed);
  t.deepEqual(
    kept.flatMap(({ steps }) => steps),
    listener.steps.map((step) => ActorStep.decode(ActorStep.encode(step))),
  );
  t.true(Math.max(...kept.map((each) => ActorFeed.encode(each).length)) <= messageBytesMax);
});
