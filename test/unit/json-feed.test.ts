import test from "ava";
import { globMatches } from "../../edges/juju/entities/cluster-view.ts";
import { applicationName, machineId, unitOfTag, unitTag } from "../../edges/juju/entities/names.ts";
import { Entities } from "../../edges/juju/feed/entities.ts";
import { machineView, type MachineView } from "../../edges/juju/entities/views.ts";
import { workerNode } from "../support/control.ts";

const fits = /^[a-z][a-z0-9]*(-[a-z0-9]*[a-z][a-z0-9]*)*$/;

test("E2: a name that fits stays, and any other becomes one that does", (t) => {
  for (const name of ["web", "my-app", "a1-b2"]) t.is(applicationName(name), name);
  for (const name of ["web-1", "Web", "my_app", "my.app", "1st", "_", "ÄÖÜ", "a--b", "web-"]) {
    t.regex(applicationName(name), fits, name);
    t.is(applicationName(name), applicationName(name));
  }
});

test("E1: names that would become one stay two", (t) => {
  const names = ["a_b", "a.b", "a-b", "a b", "a__b", "a-1", "a-n1", "A-1x"];
  t.is(new Set(names.map(applicationName)).size, names.length);
});

test("machines are numbers below 2^48, always the same, and no two of ten thousand meet", (t) => {
  const numbers = new Set<string>();
  for (let at = 0; at < 10_000; at += 1) numbers.add(machineId(`node${at}`));
  t.is(numbers.size, 10_000);
  for (const number of numbers) {
    t.regex(number, /^(0|[1-9]\d*)$/);
    t.true(Number(number) < 2 ** 48);
  }
  t.is(machineId("node7"), machineId("node7"));
});

test("a unit is found again by its tag", (t) => {
  for (const unit of ["web/0", "my-app-n1-hx/17"]) t.is(unitOfTag(unitTag(unit)), unit);
  t.is(unitOfTag("machine-0"), null);
});

test("patterns match as names of files do", (t) => {
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

test("F1: what changed ten thousand times between two answers is told once", (t) => {
  const entities = new Entities(model);
  entities.put(view("a"), "a");
  const cursor = entities.revision;
  for (let at = 0; at < 10_000; at += 1) entities.put(view("a", `h${at}`), "a");
  t.deepEqual(ids(entities.answer(cursor, "V1")), ["change a"]);
  t.is(entities.size, 1);
});

test("what looks the same is no change", (t) => {
  const entities = new Entities(model);
  t.true(entities.put(view("a"), "a"));
  t.false(entities.put(view("a"), "a"));
  t.is(entities.revision, 1);
});

test("F2: what came and went between two answers is not told, what went is", (t) => {
  const entities = new Entities(model);
  entities.put(view("a"), "a");
  const cursor = entities.revision;
  const short = view("b");
  entities.put(short, "b");
  entities.remove("machine", short.id, "b");
  t.false(entities.hasNews(cursor, "V1"));
  entities.remove("machine", view("a").id, "a");
  t.true(entities.hasNews(cursor, "V1"));
  t.deepEqual(ids(entities.answer(cursor, "V1")), ["remove a"]);
});

test("what was removed and made again is told as a change", (t) => {
  const entities = new Entities(model);
  entities.put(view("a"), "a");
  const cursor = entities.revision;
  entities.remove("machine", view("a").id, "a");
  entities.put(view("a", "new"), "a2");
  t.deepEqual(ids(entities.answer(cursor, "V1")), ["change a"]);
  t.false(entities.remove("machine", view("a").id, "a"), "it is another's by now");
});

test("F3: what is gone is kept for those that knew it, and for nobody else", (t) => {
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
  t.is(ids(entities.answer(slow, "V1")).length, 100);
});

test("the first answer tells models, machines, applications and units in this order", (t) => {
  const entities = new Entities(model);
  entities.put(view("a"), "a");
  entities.put({ kind: "model", id: "m", name: "m", controllerUuid: "c", labels: {} }, "m");
  const { deltas } = JSON.parse(entities.answer(0, "V1")) as { deltas: [string][] };
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
  const { Deltas } = JSON.parse(entities.answer(0, "V0")) as { Deltas: [string, string, { InstanceId: string }][] };
  t.deepEqual([Deltas[0]?.[0], Deltas[0]?.[2].InstanceId], ["machine", "a"]);
});
