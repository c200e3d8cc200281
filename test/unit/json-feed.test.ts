import test from "ava";
import { globMatches } from "../../edges/juju/entities/cluster-view.ts";
import { applicationName, machineId, unitOfTag, unitTag } from "../../edges/juju/entities/names.ts";
import { Entities } from "../../edges/juju/feed/entities.ts";
import { Wakers } from "../../edges/juju/feed/wakers.ts";
import { Feed } from "../../edges/juju/feed/feed.ts";
import { Annotations, Task, TaskState } from "../../proto/gen/messages.ts";
import type { TimerHandle } from "../../runtime/ports/index.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { testManager } from "../support/manager.ts";
import { machineView, type MachineView } from "../../edges/juju/entities/views.ts";
import { workerNode } from "../support/control.ts";

const fits = /^[a-z][a-z0-9]*(-[a-z0-9]*[a-z][a-z0-9]*)*$/;

test("E2: a valid name is kept, and any other is converted into one", (t) => {
  for (const name of ["web", "my-app", "a1-b2"]) t.is(applicationName(name), name);
  for (const name of ["web-1", "Web", "my_app", "my.app", "1st", "_", "ÄÖÜ", "a--b", "web-"]) {
    t.regex(applicationName(name), fits, name);
    t.is(applicationName(name), applicationName(name));
  }
});

test("E1: names that would map to the same one stay distinct", (t) => {
  const names = ["a_b", "a.b", "a-b", "a b", "a__b", "a-1", "a-n1", "A-1x"];
  t.is(new Set(names.map(applicationName)).size, names.length);
});

test("machines are numbers below 2^48, stable, and distinct among ten thousand", (t) => {
  const numbers = new Set<string>();
  for (let at = 0; at < 10_000; at += 1) numbers.add(machineId(`node${at}`));
  t.is(numbers.size, 10_000);
  for (const number of numbers) {
    t.regex(number, /^(0|[1-9]\d*)$/);
    t.true(Number(number) < 2 ** 48);
  }
  t.is(machineId("node7"), machineId("node7"));
});

test("a unit is found by its tag", (t) => {
  for (const unit of ["web/0", "my-app-n1-hx/17"]) t.is(unitOfTag(unitTag(unit)), unit);
  t.is(unitOfTag("machine-0"), null);
});

test("patterns match like file name patterns", (t) => {
  t.true(globMatches("web*", "web/0"));
  t.true(globMatches("*/1?", "web/12"));
  t.true(globMatches("a*b*c", "aXbYbZc"));
  t.false(globMatches("web", "web/0"));
  t.false(globMatches("?", ""));
  t.false(globMatches(`${"*a".repeat(2_000)}b`, "a".repeat(20_000)));
});

const view = (id: string, hostname = "h"): MachineView => ({ ...machineView(workerNode(id)), hostname });
const model = (): string => "uuid";
const ids = (answer: string): string[] =>
  (JSON.parse(answer) as { deltas: [string, string, { "instance-id": string }][] }).deltas.map(
    ([, action, entity]) => `${action} ${entity["instance-id"]}`,
  );

test("F1: ten thousand changes between two answers are sent once", (t) => {
  const entities = new Entities(model);
  entities.put(view("a"), "a");
  const cursor = entities.revision;
  for (let at = 0; at < 10_000; at += 1) entities.put(view("a", `h${at}`), "a");
  t.deepEqual(ids(entities.answer(cursor, "V1", true).result.text), ["change a"]);
  t.is(entities.size, 1);
});

test("a change that is not visible is not sent", (t) => {
  const entities = new Entities(model);
  t.true(entities.put(view("a"), "a"));
  t.false(entities.put(view("a"), "a"));
  t.is(entities.revision, 1);
});

test("F2: an object that is created and removed between two answers is not sent, but an older one's removal is", (t) => {
  const entities = new Entities(model);
  entities.put(view("a"), "a");
  const cursor = entities.revision;
  const short = view("b");
  entities.put(short, "b");
  entities.remove("machine", short.id, "b");
  t.false(entities.hasNews(cursor, "V1"));
  entities.remove("machine", view("a").id, "a");
  t.true(entities.hasNews(cursor, "V1"));
  t.deepEqual(ids(entities.answer(cursor, "V1", true).result.text), ["remove a"]);
});

test("an object that was removed and created again is sent as a change", (t) => {
  const entities = new Entities(model);
  entities.put(view("a"), "a");
  const cursor = entities.revision;
  entities.remove("machine", view("a").id, "a");
  entities.put(view("a", "new"), "a2");
  t.deepEqual(ids(entities.answer(cursor, "V1", true).result.text), ["change a"]);
  t.false(entities.remove("machine", view("a").id, "a"), "it belongs to another by now");
});

test("F3: removals are retained only for watchers that knew the object", (t) => {
  const entities = new Entities(model);
  for (let at = 0; at < 100; at += 1) entities.put(view(`known${at}`), "x");
  const slow = entities.revision;
  for (let at = 0; at < 100; at += 1) entities.remove("machine", view(`known${at}`).id, "x");
  for (let round = 0; round < 50; round += 1) {
    for (let at = 0; at < 100; at += 1) entities.put(view(`new${round}-${at}`), "x");
    for (let at = 0; at < 100; at += 1) entities.remove("machine", view(`new${round}-${at}`).id, "x");
    entities.sweep(() => [slow, entities.revision]);
  }
  t.true(entities.size < 2_500, `${entities.size} are kept`);
  t.is(ids(entities.answer(slow, "V1", true).result.text).length, 100);
});

test("the first answer lists models, machines, applications and units in this order", (t) => {
  const entities = new Entities(model);
  entities.put(view("a"), "a");
  entities.put({ kind: "model", id: "m", name: "m", controllerUuid: "c", labels: {} }, "m");
  const { deltas } = JSON.parse(entities.answer(0, "V1", true).result.text) as { deltas: [string][] };
  t.deepEqual(
    deltas.map(([kind]) => kind),
    ["model", "machine"],
  );
});

test("the old shape has no models, and its own keys", (t) => {
  const entities = new Entities(model);
  entities.put({ kind: "model", id: "m", name: "m", controllerUuid: "c", labels: {} }, "m");
  t.false(entities.hasNews(0, "V0"));
  entities.put(view("a"), "a");
  const { Deltas } = JSON.parse(entities.answer(0, "V0", true).result.text) as {
    Deltas: [string, string, { InstanceId: string }][];
  };
  t.deepEqual([Deltas[0]?.[0], Deltas[0]?.[2].InstanceId], ["machine", "a"]);
});

test("a waiting watcher is woken at once after a quiet time, and many only as often as they can be answered", async (t) => {
  const { clock, wakers, seen } = costlyWakers(0.1);
  for (let at = 0; at < 1_000; at += 1) wakers.wait("x", seen.wake);
  await changing(clock, wakers, 1_000);
  // A tenth of a second for all of them, and then a pause of half of that.
  t.true(seen.gathered >= 19 && seen.gathered <= 21, `${seen.gathered} times in a second beside that work`);
  t.is(seen.woken % 1_000, 0);
  wakers.stop();
});

test("the pause is at most a second, whatever duration a clock reports", async (t) => {
  const { clock, wakers, seen } = costlyWakers(3_600_000);
  wakers.wait("x", seen.wake);
  await changing(clock, wakers, 2_500);
  t.is(seen.woken, 3);
  wakers.stop();
});

/** The cost of each wake-up in milliseconds. */
function costlyWakers(costMs: number) {
  const clock = new SimClock();
  const seen = { gathered: 0, woken: 0, wake: () => void (seen.woken += 1) };
  const slow = {
    now: () => clock.now(),
    monotonic: () => clock.monotonic() + seen.woken * costMs,
    setTimeout: (callback: () => void, ms: number) => clock.setTimeout(callback, ms),
    clearTimeout: (timer: TimerHandle) => clock.clearTimeout(timer),
    soon: (callback: () => void) => clock.soon(callback),
  };
  const wakers = new Wakers(slow, () => {
    seen.gathered += 1;
    return ["x"];
  });
  return { clock, wakers, seen };
}

/** Something changes each millisecond. */
async function changing(clock: SimClock, wakers: Wakers, forMs: number): Promise<void> {
  for (let ms = 0; ms < forMs; ms += 1) {
    wakers.schedule();
    await clock.run({ untilMs: clock.now() + 1 });
  }
}

test("changes during a wake-up round are gathered after it", async (t) => {
  const clock = new SimClock();
  let news = 1;
  const wakers = new Wakers(clock, () => (news > 0 ? ["x"] : []));
  let woken = 0;
  for (let at = 0; at < 500; at += 1) wakers.wait("x", () => void (woken += 1));
  wakers.schedule();
  await clock.run({ until: () => woken > 0 });
  t.is(woken, 200, "in turns");
  wakers.schedule();
  await clock.run({ until: () => woken >= 1_000 });
  t.is(woken % 200, 0);
  news = 0;
  wakers.stop();
});

test("a watcher that starts to wait alone does not wait through the long pause", async (t) => {
  const clock = new SimClock();
  const wakers = new Wakers(clock, () => ["x"]);
  wakers.schedule();
  await clock.run({ untilMs: clock.now() + 1 });
  wakers.schedule();
  let woken = false;
  wakers.wait("x", () => (woken = true));
  await clock.run({ untilMs: clock.now() + 6 });
  t.true(woken);
  wakers.stop();
});

test("F4: a large cluster is processed in slices; a request waits, or takes what there is", async (t) => {
  const manager = testManager();
  const tasks = Array.from({ length: 5_000 }, (_, slot) =>
    Task.create({
      id: `t${slot}`,
      serviceId: "s",
      serviceAnnotations: Annotations.create({ name: "web" }),
      slot: slot + 1,
      desiredState: TaskState.RUNNING,
    }),
  );
  manager.seed("task", ...tasks);
  const feed = new Feed(manager);
  feed.start();
  const before = feed.view().units.length;
  t.true(before > 0 && before < 1_000, `${before} in one slice`);
  let isReady = false;
  const ready = feed.ready()?.then(() => (isReady = true));
  await manager.clock.run({ untilMs: manager.clock.now() + 30 });
  t.false(isReady);
  t.true(feed.view().units.length < 5_000);
  await manager.clock.run({ untilMs: manager.clock.now() + 1_000 });
  await ready;
  t.is(feed.ready(), null);
  t.is(feed.view().units.length, 5_000);
  // Changed between slices, and without having waited.
  manager.seed("task", ...tasks.map((task) => Task.patch(task, { desiredState: TaskState.SHUTDOWN })));
  const lives = (): Set<string> => new Set(feed.view().units.map(({ life }) => life));
  t.true(lives().has("alive"));
  feed.refresh();
  t.deepEqual(lives(), new Set(["dying"]));
  feed.stop();
});
