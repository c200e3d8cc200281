import { createServer } from "node:net";
import { join } from "node:path";
import test from "ava";
import { assign, raise } from "xstate";
import { allCharts } from "../../cli/charts.ts";
import { connectUnix } from "../../edges/grpc/client.ts";
import { chart, effect } from "../../machines/chart.ts";
import { Host } from "../../runtime/host.ts";
import type { ObservedStep } from "../../runtime/observation/step.ts";
import { rootOf, transitionsOf, childrenOf, type AnyNode } from "../../runtime/observation/transition-ids.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { createSimTelemetry } from "../../runtime/sim/telemetry.ts";
import { SimTrace } from "../../runtime/sim/trace.ts";
import { SystemClock } from "../../runtime/system/clock.ts";
import { tempDir } from "../fixtures/muster.ts";
import {
  Causes,
  currentCause,
  inCall,
  inCause,
  inOwnTrace,
  inTrace,
  linkedTracesMax,
  noCause,
  watchCauses,
  type Cause,
} from "../../runtime/observation/cause.ts";
import { chartDefinitions } from "../../cli/chart-definitions.ts";
import type { StateDefinition } from "../../proto/feed/chart-definition.ts";

type DoorEvent = { readonly type: "opened" | "closed" | "locked" | "key.turned" | "night.came" | "surprise" };
interface DoorContext {
  readonly uses: number;
}

/** Every kind of step: guards, entry and exit, eventless and raised transitions, named and drawn delays, parallel states. */
const doorMachine = chart({
  types: { context: {} as DoorContext, events: {} as DoorEvent, input: {} as { readonly uses: number } },
  effects: { ring: effect(), light: effect(), darken: effect(), bolt: effect() },
  actions: {
    count: assign({ uses: ({ context }) => context.uses + 1 }),
    lockLater: raise({ type: "night.came" }, { delay: "day", id: "night" }),
  },
  guards: { isWorn: ({ context }) => context.uses >= 2 },
  delays: { closer: 5_000, day: 60_000 },
}).createMachine({
  id: "door",
  context: ({ input }) => ({ uses: input.uses }),
  type: "parallel",
  states: {
    leaf: {
      initial: "shut",
      states: {
        shut: {
          entry: "darken",
          on: {
            opened: [
              { guard: "isWorn", target: "broken" },
              { target: "open", actions: ["count", "ring"] },
            ],
          },
        },
        open: {
          entry: "light",
          exit: "lockLater",
          after: { closer: "shut" },
          on: { closed: "shut", opened: { target: "open", reenter: true } },
        },
        broken: { always: { target: "removed", actions: "ring" } },
        removed: {},
      },
    },
    lock: {
      initial: "free",
      states: {
        free: { on: { "night.came": { target: "locked", actions: "bolt" } } },
        locked: { on: { "key.turned": "free" } },
      },
    },
  },
  ignore: ["locked"],
});

interface World {
  readonly host: Host;
  readonly clock: SimClock;
  readonly steps: ObservedStep[];
}

function newWorld(): World {
  const clock = new SimClock();
  const random = new SimRandom("observation");
  const telemetry = createSimTelemetry({
    who: "host",
    random,
    trace: new SimTrace(clock, { keepLines: false }),
  });
  const host = new Host({ clock, telemetry, onCrash: () => {} });
  return { host, clock, steps: [] };
}

const silent = { ring() {}, light() {}, darken() {}, bolt() {} };

test("a step has its transitions, guards, effects in order, states, context before and after", (t) => {
  const { host, steps } = newWorld();
  host.observe((step) => steps.push(step));
  const door = host.start(doorMachine, "door/1", { uses: 1 }, { effects: silent });
  door.send({ type: "opened" });
  door.send({ type: "closed" });
  door.send({ type: "opened" });
  door.send({ type: "locked" });
  door.send({ type: "surprise" });
  t.deepEqual(
    steps.map(({ event, transitions, guards, effects, states, unexpected, context, contextBefore }) => [
      event.type,
      transitions,
      guards,
      effects,
      states,
      unexpected,
      (contextBefore as DoorContext | null)?.uses ?? null,
      (context as DoorContext).uses,
    ]),
    [
      ["xstate.init", [], [], ["darken"], ["leaf.shut", "lock.free"], false, null, 1],
      ["opened", ["leaf.shut#opened#1"], [], ["count", "ring", "light"], ["leaf.open", "lock.free"], false, 1, 2],
      ["closed", ["leaf.open#closed#0"], [], ["lockLater", "darken"], ["leaf.shut", "lock.free"], false, 2, 2],
      [
        "opened",
        ["leaf.shut#opened#0", "leaf.broken#always#0"],
        ["isWorn"],
        ["ring"],
        ["leaf.removed", "lock.free"],
        false,
        2,
        2,
      ],
      ["locked", ["#locked#0"], [], [], ["leaf.removed", "lock.free"], false, 2, 2],
      ["surprise", [], [], [], ["leaf.removed", "lock.free"], true, 2, 2],
    ],
  );
  t.is(steps[3]?.states, steps[4]?.states, "equal states are the same array");
  t.deepEqual([host.look("door/1")?.lastEvent, host.look("door/1")?.steps], ["locked", 6]);
});

test("a step that re-enters its state has the exit and entry effects", (t) => {
  const { host, steps } = newWorld();
  const door = host.start(doorMachine, "door/1", { uses: 0 }, { effects: silent });
  door.send({ type: "opened" });
  host.observe((step) => steps.push(step));
  door.send({ type: "opened" });
  t.deepEqual(steps[0]?.effects, ["lockLater", "light"]);
});

test("timers are shown with the time at which they were armed and are due, until they fire or are cancelled", (t) => {
  const { host, clock, steps } = newWorld();
  host.observe((step) => steps.push(step));
  const from = clock.now();
  const door = host.start(doorMachine, "door/1", { uses: 0 }, { effects: silent });
  const closer = (at: number) => ({
    delay: "closer",
    state: "leaf.open",
    armedAtMs: from + at,
    dueAtMs: from + at + 5_000,
  });
  const day = (at: number) => ({ delay: "day", state: "", armedAtMs: from + at, dueAtMs: from + at + 60_000 });
  const armed = () =>
    host.look("door/1")?.timers.map(({ delay, state, armedAtMs, dueAtMs }) => ({ delay, state, armedAtMs, dueAtMs }));
  clock.advance(100);
  door.send({ type: "opened" });
  t.deepEqual(armed(), [closer(100)]);
  clock.advance(1_000);
  door.send({ type: "closed" });
  t.deepEqual(armed(), [day(1_100)]);
  clock.advance(60_000);
  t.is(steps.at(-1)?.transitions[0], "lock.free#night.came#0");
  t.deepEqual(armed(), []);
  door.send({ type: "opened" });
  t.deepEqual(armed(), [closer(61_100)]);
  clock.advance(5_000);
  t.is(steps.at(-1)?.transitions[0], "leaf.open#after closer#0");
  t.deepEqual(armed(), [day(66_100)]);
});

test("an observer that comes later knows the timers that were armed before, and since when it looks", (t) => {
  const { host, clock } = newWorld();
  const door = host.start(doorMachine, "door/1", { uses: 0 }, { effects: silent });
  const startedAt = clock.now();
  door.send({ type: "opened" });
  clock.advance(10);
  host.observe(() => {});
  const looked = host.look("door/1");
  t.like(looked, { startedAtMs: startedAt, sinceMs: 0, steps: 0, lastEvent: "" });
  t.deepEqual(
    looked?.timers.map(({ delay, state }) => [delay, state]),
    [["closer", "leaf.open"]],
  );
  door.send({ type: "closed" });
  t.like(host.look("door/1"), { sinceMs: clock.now(), steps: 1, lastEvent: "closed" });
});

test("the source of an event is the actor whose effect sent it, and its trace that of the work around it", (t) => {
  const { host, clock, steps } = newWorld();
  host.observe((step) => steps.push(step));
  const second = host.start(doorMachine, "door/2", { uses: 0 }, { effects: silent });
  const third = host.start(doorMachine, "door/3", { uses: 0 }, { effects: silent });
  const first = host.start(
    doorMachine,
    "door/1",
    { uses: 0 },
    {
      effects: {
        ...silent,
        ring(_, self) {
          second.send({ type: "opened" });
          third.sendSoon({ type: "opened" });
          self.send({ type: "locked" });
        },
      },
    },
  );
  steps.length = 0;
  const traceparent = `00-${"a".repeat(32)}-${"b".repeat(16)}-01`;
  inTrace(traceparent, () => first.send({ type: "opened" }));
  clock.advance(1);
  first.send({ type: "closed" });
  t.deepEqual(
    steps.map(({ id, event, source, cause }) => [id, event.type, source, cause.traceparent === traceparent]),
    [
      ["door/2", "opened", "door/1", true],
      ["door/1", "opened", "", true],
      ["door/1", "locked", "door/1", true],
      ["door/3", "opened", "door/1", true],
      ["door/1", "closed", "", false],
    ],
  );
});

const traceOf = (digit: string): string => `00-${digit.repeat(32)}-${"b".repeat(16)}-01`;

test("a timer's step is linked to the trace that armed it, with its effects; timers armed then keep none", (t) => {
  const { clock, host, steps } = newWorld();
  host.observe((step) => steps.push(step));
  const other = host.start(doorMachine, "door/2", { uses: 0 }, { effects: silent });
  const door = host.start(doorMachine, "door/1", { uses: 0 }, {
    effects: { ring() {}, light() {}, bolt() {}, darken: () => other.send({ type: "opened" }) },
    draw: (boundMs: number) => boundMs,
  } as never);
  steps.length = 0;
  inTrace(traceOf("a"), () => door.send({ type: "opened" }));
  clock.advance(5_000);
  clock.advance(70_000);
  const found = steps.map(({ id, event, cause }) => [id, event.type, cause.traceparent, ...cause.linked]);
  const traced = found.filter(([, , ...traces]) => traces.some((trace) => trace !== ""));
  t.deepEqual(traced, [
    ["door/1", "opened", traceOf("a")],
    ["door/2", "opened", "", traceOf("a")],
    ["door/1", "xstate.after.closer.door.leaf.open", "", traceOf("a")],
  ]);
  t.true(found.length > traced.length + 2, "later timers of both have fired");
  t.is(currentCause(), noCause, "nothing is left of it");
});

test("a batch is linked to each of its traces up to a limit, counts the rest, and has the call that it came from", (t) => {
  const { host, steps } = newWorld();
  host.observe((step) => steps.push(step));
  const door = host.start(doorMachine, "door/1", { uses: 0 }, { effects: silent });
  steps.length = 0;
  const causes = new Causes();
  const noted = (digits: string) =>
    inCall("/docker.swarmkit.v1.Control/CreateService", { isOpen: true }, () =>
      inTrace(`00-${digits.padStart(32, "0")}-${"b".repeat(16)}-01`, () => causes.note()),
    );
  noted("1");
  inCause(causes.peek(), () => door.send({ type: "opened" }));
  noted("1");
  noted("2");
  inCause(causes.take(), () => door.send({ type: "opened" }));
  t.is(causes.take(), noCause, "nothing is left");
  for (let at = 0; at < linkedTracesMax + 3; at += 1) noted(`${at}`);
  inCause(causes.take(), () => {
    door.send({ type: "opened" });
    inOwnTrace("", "driver", () => door.send({ type: "closed" }));
  });
  t.deepEqual(
    steps.map(({ cause: { call, linked, linkedMore, traceparent } }) => [
      call,
      traceparent === "",
      linked.length,
      linkedMore,
    ]),
    [
      ["Control.CreateService", false, 0, 0],
      ["Control.CreateService", true, 2, 0],
      ["Control.CreateService", true, linkedTracesMax, 3],
      ["driver", true, 0, 0],
    ],
  );
});

test("CA2: after a wait, an event has the call and the trace of its handler while the call is open", async (t) => {
  const { host, steps } = newWorld();
  host.observe((step) => steps.push(step));
  const door = host.start(doorMachine, "door/1", { uses: 0 }, { effects: silent });
  steps.length = 0;
  const call = { isOpen: true };
  const other = Promise.withResolvers<void>();
  const handler = async (): Promise<void> => {
    await Promise.resolve();
    door.send({ type: "opened" });
    inTrace(traceOf("b"), () => door.send({ type: "closed" }));
    await other.promise;
    door.send({ type: "opened" });
    call.isOpen = false;
    door.send({ type: "closed" });
  };
  const handled = inCall("/docker.swarmkit.v1.Control/CreateService", call, () => inTrace(traceOf("a"), handler));
  t.is(currentCause(), noCause, "the caller of a handler has no cause of it");
  await Promise.resolve();
  await inCall("/docker.swarmkit.v1.Dispatcher/Session", { isOpen: true }, async () => {
    door.send({ type: "opened" });
    // It wakes the other handler, whose events are its own.
    other.resolve();
    await handled;
    door.send({ type: "closed" });
  });
  t.deepEqual(
    steps.map(({ cause, event }) => [event.type, cause.call, cause.traceparent]),
    [
      ["opened", "Control.CreateService", traceOf("a")],
      ["closed", "Control.CreateService", traceOf("b")],
      ["opened", "Dispatcher.Session", ""],
      ["opened", "Control.CreateService", traceOf("a")],
      ["closed", "", ""],
      ["closed", "Dispatcher.Session", ""],
    ],
  );
});

test("CA2: timers, later turns, connections and work with another cause do not belong to the call that began them", async (t) => {
  const watching = watchCauses();
  t.teardown(() => watching.unsubscribe());
  const clock = new SystemClock();
  const seen = new Map<string, Cause>();
  const note = (what: string): void => void seen.set(what, currentCause());
  const path = join(tempDir(t, "cause"), "socket");
  const server = createServer((socket) => socket.end("not HTTP/2"));
  await new Promise<void>((resolve) => server.listen(path, resolve));
  t.teardown(() => server.close());
  const batch = { ...noCause, linked: [traceOf("a"), traceOf("b")] };
  await inCall("/docker.swarmkit.v1.Control/CreateService", { isOpen: true }, async () => {
    await Promise.resolve();
    await Promise.all([
      new Promise<void>((resolve) => clock.setTimeout(() => resolve(note("timer")), 1)),
      new Promise<void>((resolve) => clock.soon(() => resolve(note("soon")))),
      connectUnix(path).then(
        (channel) =>
          new Promise<void>((resolve) => {
            channel.onClosed(() => resolve(note("connection")));
          }),
      ),
      inCause(batch, async () => {
        note("batch");
        await Promise.resolve();
        note("after the batch");
      }),
      inCause(noCause, async () => {
        await Promise.resolve();
        note("after work without a cause");
      }),
    ]);
    note("handler");
  });
  t.is(seen.get("batch"), batch);
  t.is(seen.get("handler")?.call, "Control.CreateService");
  for (const what of ["timer", "soon", "connection", "after the batch", "after work without a cause"])
    t.is(seen.get(what), noCause, what);
});

test.serial("CA1: while nobody watches, a call keeps nothing for after its waits", async (t) => {
  const begun = inCall("/docker.swarmkit.v1.Control/CreateService", { isOpen: true }, async () => {
    await Promise.resolve();
    return currentCause();
  });
  const watching = watchCauses();
  t.teardown(() => watching.unsubscribe());
  t.is(await begun, noCause);
});

test("a step in which an actor throws is its last, with status error", (t) => {
  const { host, steps } = newWorld();
  host.observe((step) => steps.push(step));
  const ring = (): void => {
    throw new Error("broken bell");
  };
  const door = host.start(doorMachine, "door/1", { uses: 0 }, { effects: { ...silent, ring } });
  door.send({ type: "opened" });
  t.deepEqual(
    steps.map(({ event, status }) => [event.type, status]),
    [
      ["xstate.init", "active"],
      ["opened", "error"],
    ],
  );
});

test("the transitions of every chart have the ids that the page's charts have", async (t) => {
  const definitions = new Map((await chartDefinitions()).map(({ id, root }) => [id, root]));
  const ofPage = ({ transitions, states }: StateDefinition): readonly string[] => [
    ...transitions.map(({ id }) => id),
    ...states.flatMap(ofPage),
  ];
  const ofHost = (node: AnyNode): readonly string[] => [
    ...transitionsOf(node).map(({ id }) => id),
    ...childrenOf(node).flatMap(ofHost),
  ];
  for (const { machine } of await allCharts()) {
    const root = definitions.get(machine.id);
    const ids = ofHost(rootOf(machine));
    t.deepEqual(ids, root === undefined ? [] : ofPage(root), machine.id);
    t.is(new Set(ids).size, ids.length, `${machine.id}: ids are distinct`);
  }
});
