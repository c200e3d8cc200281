import test from "ava";
import { createJsonWatchers } from "../../actors/json/watcher.ts";
import { asksMax, jsonWatcherMachine, type JsonWatcherEvent } from "../../machines/json/watcher.machine.ts";
import type { ObservedStep } from "../../runtime/observation/step.ts";
import type { News } from "../../runtime/ports/json-watch.ts";
import { ChartRun } from "../support/chart-run.ts";
import { testManager } from "../support/manager.ts";

function after(...events: readonly JsonWatcherEvent[]) {
  const { state, snapshot, effects } = new ChartRun(jsonWatcherMachine).send(...events);
  const { asks } = snapshot.context;
  return { state, asks, effects: effects.map(({ type, params }) => [type, params ?? null] as const) };
}

const asked = (ask: number, hasNews = false): JsonWatcherEvent => ({ type: "next.requested", ask, hasNews });

test("JW1: a Next is answered at once if something has changed, and waits otherwise", (t) => {
  t.deepEqual(after(asked(1, true)).effects, [["answer", { type: "next.requested", ask: 1, hasNews: true }]]);
  const waiting = after(asked(1));
  t.is(waiting.state, "waiting");
  t.deepEqual(
    waiting.effects.map(([type]) => type),
    ["awaitNews"],
  );
});

test("JW2: of two Nexts the older gets the first change, and the other the next", (t) => {
  const first = after(asked(1), asked(2), { type: "news.found" });
  t.deepEqual(first.effects, [["answer", { ask: 1 }]]);
  t.deepEqual([first.state, first.asks], ["waiting", [2]]);
  const second = after(asked(1), asked(2), { type: "news.found" }, { type: "news.found" });
  t.deepEqual(second.effects, [
    ["stopAwaitingNews", null],
    ["answer", { ask: 2 }],
  ]);
  t.is(second.state, "idle");
});

test("one Next too many is rejected, and the ones before it still wait", (t) => {
  const asks = Array.from({ length: asksMax + 1 }, (_, at) => asked(at));
  const crowded = after(...asks);
  t.deepEqual(crowded.effects, [["refuse", { asks: [asksMax], reason: "crowded" }]]);
  t.is(crowded.asks.length, asksMax);
});

for (const [event, reason] of [
  ["stop.requested", "asked"],
  ["connection.closed", "closed"],
] as const) {
  test(`JW3: at ${event} every waiting Next is rejected`, (t) => {
    const stopped = after(asked(1), asked(2), { type: event });
    t.is(stopped.state, "stopped");
    t.deepEqual(
      stopped.effects.filter(([type]) => type !== "stopAwaitingNews"),
      [
        ["refuse", { asks: [1, 2], reason }],
        ["release", null],
      ],
    );
    t.deepEqual(stopped.asks, []);
  });
}

test("a watcher that was woken and answered meanwhile does nothing", (t) => {
  t.deepEqual(after({ type: "news.found" }).effects, []);
});

test("JW3: when the watched object ends, every waiting and every later Next is notified", (t) => {
  const ended = after(asked(1), asked(2), { type: "news.ended" });
  t.deepEqual([ended.state, ended.asks], ["over", []]);
  t.deepEqual(ended.effects, [
    ["stopAwaitingNews", null],
    ["refuse", { asks: [1, 2], reason: "ended" }],
  ]);
  t.deepEqual(after({ type: "news.ended" }, asked(1)).effects, [["refuse", { asks: [1], reason: "ended" }]]);
  const stopped = after({ type: "news.ended" }, { type: "stop.requested" });
  t.is(stopped.state, "stopped");
  t.deepEqual(stopped.effects.at(-1), ["release", null]);
});

/** The current waiters; one that waits again meanwhile does so for the next time. */
function wakeAll(waiters: ReadonlySet<() => void>): void {
  const now = Array.from(waiters);
  for (const wake of now) wake();
}

function counted() {
  const waiters = new Set<() => void>();
  const counter = { value: 0, told: 0, released: 0, waiters };
  const news: News<number> = {
    has: () => counter.value !== counter.told,
    take: () => (counter.told = counter.value),
    wait(wake) {
      waiters.add(wake);
      return { unsubscribe: () => void waiters.delete(wake) };
    },
    release: () => void (counter.released += 1),
    refusal: (reason) => new Error(reason),
  };
  return { counter, news };
}

test("a watcher answers with coalesced changes, and nobody is woken without a waiting Next", async (t) => {
  const { env } = testManager();
  const { counter, news } = counted();
  const watcher = createJsonWatchers(env).start(news);
  counter.value = 5;
  t.is(counter.waiters.size, 0);
  t.is(await watcher.next(), 5);
  const next = watcher.next();
  t.is(counter.waiters.size, 1);
  counter.value = 7;
  wakeAll(counter.waiters);
  t.is(await next, 7);
  t.is(counter.waiters.size, 0);
});

test("woken without a change it continues waiting, and once stopped it leaves nothing behind", async (t) => {
  const { env } = testManager();
  const { counter, news } = counted();
  const watcher = createJsonWatchers(env).start(news);
  const next = watcher.next();
  wakeAll(counter.waiters);
  t.is(counter.waiters.size, 1);
  watcher.stop();
  await t.throwsAsync(next, { message: "asked" });
  await t.throwsAsync(watcher.next(), { message: "asked" });
  watcher.close();
  t.is(counter.released, 1);
  t.is(counter.waiters.size, 0);
});

test("viewers see a watcher that a table runs, with the steps that its chart would have", async (t) => {
  const { env } = testManager();
  const { counter, news } = counted();
  const before = createJsonWatchers(env).start(counted().news);
  t.deepEqual([...env.host.tables.ids()], ["json-watcher/1"]);
  before.close();
  t.deepEqual([...env.host.tables.ids()], []);
  const watcher = createJsonWatchers(env).start(news);
  const steps: ObservedStep[] = [];
  const observing = env.host.observe((step) => steps.push(step));
  t.like(env.host.look("json-watcher/1"), { states: ["idle"], steps: 0, status: "active" });
  const next = watcher.next();
  counter.value = 7;
  wakeAll(counter.waiters);
  await next;
  watcher.stop();
  t.deepEqual(
    steps.map(({ id, machine, event, states, transitions, guards, effects, status, context }) => [
      `${id} ${machine.id} ${event.type} -> ${states.join(" ")} ${status}`,
      transitions.join(" "),
      guards.join(" "),
      effects.join(" "),
      context,
    ]),
    [
      [
        "json-watcher/1 jsonWatcher next.requested -> waiting active",
        "idle#next.requested#1",
        "",
        "enqueue awaitNews",
        { asks: [1] },
      ],
      [
        "json-watcher/1 jsonWatcher news.found -> idle active",
        "waiting#news.found#0",
        "isLastAsk",
        "stopAwaitingNews answer dequeue",
        { asks: [] },
      ],
      [
        "json-watcher/1 jsonWatcher stop.requested -> stopped done",
        "#stop.requested#0",
        "",
        "refuse forgetAsks release",
        { asks: [] },
      ],
    ],
  );
  t.is(env.host.look("json-watcher/1"), undefined);
  observing.unsubscribe();
});

test("waiting requests are notified when the connection ends", async (t) => {
  const { env } = testManager();
  const { news } = counted();
  const watcher = createJsonWatchers(env).start(news);
  const next = watcher.next();
  watcher.close();
  await t.throwsAsync(next, { message: "closed" });
});
