// The page's time line: parts in view, seeks, gaps, and the actors as they were.
import test from "ava";
import { ActorFeed, ActorSnapshot, ActorState, ActorStep, RecordedSpan, TimelineStep } from "../../proto/gen/page.ts";
import { drawnGaps } from "../../ui/model/gaps.ts";
import { joined, PastBuilder } from "../../ui/model/past.ts";
import { hashOf, momentOf, routeOf } from "../../ui/model/route.ts";
import { Seeks } from "../../ui/model/seeks.ts";
import { sequenceOf, tracesOf } from "../../ui/model/sequence.ts";
import { momentAt, nearest, panned, placeOf, revealing, spanMsMin, zoomed } from "../../ui/model/span.ts";

const process = "manager-m1";
const whole = { fromMs: 10_000, toMs: 20_000 };

function step(number: number, fields: Partial<ActorStep> = {}): ActorStep {
  return ActorStep.create({ actor: "session/n1", machine: "session", number, atMs: number, event: "e", ...fields });
}

test("the address names the moment, also one that cannot be read", (t) => {
  const route = { view: "actor", process: "node-1", actor: "task/a?at=1" } as const;
  const moment = { atMs: Date.UTC(2026, 10, 25, 14, 3, 7, 120), step: 12 };
  const hash = hashOf(route, moment);
  t.true(hash.endsWith("?at=2026-11-25T14:03:07.120Z&step=12"));
  t.deepEqual(routeOf(hash), route);
  t.deepEqual(momentOf(hash), moment);
  t.deepEqual(momentOf(`#/actors?at=${moment.atMs}`), { atMs: moment.atMs, step: 0 });
  t.deepEqual(momentOf("#/actors?at=2026-11-25T14:03:07.120Z&step=-1"), { ...moment, step: 0 });
  t.is(momentOf("#/actors"), null);
  for (const at of ["yesterday", "", "99999999999999999999"]) t.is(momentOf(`#/actors?at=${at}`), "unreadable", at);
});

test("zooming keeps the moment under the pointer in its place, and stays within what is known", (t) => {
  const near = zoomed(whole, 2, 12_500, whole);
  t.deepEqual(near, { fromMs: 11_250, toMs: 16_250 });
  t.is(placeOf(near, 12_500), placeOf(whole, 12_500));
  t.deepEqual(zoomed(near, 1 / 4, 12_500, whole), whole);
  t.is(momentAt(zoomed(whole, 1e9, 15_000, whole), 1) - momentAt(zoomed(whole, 1e9, 15_000, whole), 0), spanMsMin);
});

test("panning and a cursor that leaves move the part in view, not beyond what is known", (t) => {
  const part = { fromMs: 12_000, toMs: 14_000 };
  t.deepEqual(panned(part, 1_000, whole), { fromMs: 13_000, toMs: 15_000 });
  t.deepEqual(panned(part, 1e9, whole), { fromMs: 18_000, toMs: 20_000 });
  t.deepEqual(panned(part, -1e9, whole), { fromMs: 10_000, toMs: 12_000 });
  t.deepEqual(revealing(part, 13_000, whole), part);
  t.deepEqual(revealing(part, 11_500, whole), { fromMs: 11_500, toMs: 13_500 });
  t.deepEqual(revealing(part, 14_500, whole), { fromMs: 12_500, toMs: 14_500 });
});

test("places are moments of the part in view, and the nearest known moment stands for an unknown one", (t) => {
  t.is(momentAt(whole, 0.25), 12_500);
  t.is(momentAt(whole, -1), 10_000);
  t.is(momentAt(whole, 2), 20_000);
  t.is(placeOf({ fromMs: 5, toMs: 5 }, 5), 1, "nothing has happened yet: at the live edge");
  t.is(nearest(whole, 1), 10_000);
  t.is(nearest(whole, 15_000), 15_000);
  t.is(nearest(whole, 1e9), 20_000);
});

test("gaps that are too near to be told apart are drawn as one, cut to the part in view", (t) => {
  const gap = (who: string, fromMs: number, toMs: number) => ({ who, fromMs, toMs });
  t.deepEqual(
    drawnGaps(
      [
        gap("b", 12_050, 12_500),
        gap("a", 11_000, 12_000),
        gap("a", 5_000, 10_500),
        gap("c", 1, 2),
        gap("a", 19_000, 30_000),
      ],
      whole,
      100,
    ),
    [
      { fromMs: 10_000, toMs: 10_500, who: ["a"] },
      { fromMs: 11_000, toMs: 12_500, who: ["a", "b"] },
      { fromMs: 19_000, toMs: 20_000, who: ["a"] },
    ],
  );
});

/** Loads that the test ends; an aborted one ends by itself. */
function seeker() {
  const loads: { readonly place: number; readonly signal: AbortSignal; readonly end: () => void }[] = [];
  const seeks = new Seeks<number>((place, signal) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => resolve());
    loads.push({ place, signal, end: resolve });
    return promise;
  });
  const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  return { loads, seeks, settled, places: () => loads.map(({ place }) => place) };
}

test("U4: while dragging, a seek is finished, and of the places since only the newest is loaded", async (t) => {
  const { loads, seeks, settled, places } = seeker();
  for (const place of [1, 2, 3, 4]) seeks.to(place, true);
  t.deepEqual(places(), [1]);
  loads[0]?.end();
  await settled();
  t.deepEqual(places(), [1, 4]);
  t.false(loads[0]?.signal.aborted);
});

test("U3: a place that is meant to stay cancels the seek that runs, and is loaded", async (t) => {
  const { loads, seeks, settled, places } = seeker();
  seeks.to(1, true);
  seeks.to(2, false);
  t.true(loads[0]?.signal.aborted);
  await settled();
  t.deepEqual(places(), [1, 2]);
  seeks.to(3, true);
  seeks.cancel();
  await settled();
  t.true(loads[1]?.signal.aborted);
  t.deepEqual(places(), [1, 2], "back in the present, nothing more is loaded");
  seeks.to(5, false);
  t.deepEqual(places(), [1, 2, 5]);
});

test("the past has the actors of each process, the event that was handled last, and the transition that it took", (t) => {
  const builder = new PastBuilder();
  const state = ActorState.create({ actor: "session/n1", machine: "session", states: ["suspect"], steps: 7 });
  const feed = (fields: Partial<ActorFeed>) => ActorFeed.create({ process, atMs: 7_000, ...fields });
  builder.take(feed({ snapshot: ActorSnapshot.create({ begins: true, actors: [state] }) }));
  builder.take(
    feed({ snapshot: ActorSnapshot.create({ ends: true, actors: [ActorState.create({ actor: "lease" })] }) }),
  );
  const newest = TimelineStep.create({ index: 41, process, step: step(3) });
  const own = [step(6, { transitions: ["a#b#0"] }), step(7, { transitions: ["c#d#0"] })];
  const { actors, step: handled } = builder.past({ atMs: 7_000, step: 0 }, [newest], process, own);
  t.is(handled, 41);
  t.is(actors.size, 2);
  t.like(actors.processes.get(process), { stale: false, skewMs: 0 });
  t.deepEqual(actors.find(process, "session/n1")?.transitions, ["c#d#0"]);
});

test("events from before an actor was watched come before those seen since, each once", (t) => {
  const numbers = (older: readonly number[], newer: readonly number[], max = 100) =>
    joined(
      older.map((number) => step(number)),
      newer.map((number) => step(number)),
      max,
    ).map(({ number }) => number);
  t.deepEqual(numbers([1, 2, 3], [3, 4]), [1, 2, 3, 4]);
  t.deepEqual(numbers([1, 2], []), [1, 2]);
  t.deepEqual(numbers([1, 2, 3], [4, 5], 3), [3, 4, 5]);
  const restarted = joined([step(8, { atMs: 10 })], [step(1, { atMs: 20 })], 100);
  t.is(restarted.length, 2, "an actor that was started again counts from 1");
});

test("a trace has each message once, from the server and from the page itself", (t) => {
  const first = { process, step: step(1, { traceId: "t", atMs: 5 }) };
  const second = { process, step: step(2, { traceId: "t", atMs: 6 }) };
  const { messages } = sequenceOf([{ index: 9, ...first }, first, second], "t");
  t.deepEqual(
    messages.map(({ number, index }) => [number, index]),
    [
      [1, 9],
      [2, 0],
    ],
  );
  const span = RecordedSpan.create({ process: "manager-m2", name: "Control/CreateService" });
  const [called] = sequenceOf([{ ...first, spans: [span] }], "t").messages;
  t.is(called?.from, "manager-m2 Control/CreateService", "an event from no actor came in a call");
  const [batch] = sequenceOf(
    [{ process, step: step(4, { linkedTraceIds: ["s", "t"], linkedMore: 5, call: "Control.X" }) }],
    "t",
  ).messages;
  t.like(batch, { from: `${process} Control.X`, others: 6 });
  const fired = { process, step: step(5, { linkedTraceIds: ["t"], event: "xstate.after.delay.x" }) };
  t.like(sequenceOf([fired], "t").messages[0], { from: `${process} session/n1`, others: 0 });
  t.deepEqual(sequenceOf([fired], "s").messages, []);
  const other = { process, step: step(3, { traceId: "u", atMs: 7 }) };
  t.deepEqual(
    tracesOf([other, second, first, first], 10).map(({ trace, steps, first: { number } }) => [trace, steps, number]),
    [
      ["u", 1, 3],
      ["t", 2, 1],
    ],
  );
});
