import test from "ava";
import { isAtLeast } from "../../runtime/user-roles.ts";
import { Params } from "../../edges/juju/params.ts";
import { RequestError } from "../../edges/juju/request-error.ts";
import { Resources, resourcesMax } from "../../edges/juju/resources.ts";
import { camelCased, keyed, verbatim } from "../../edges/juju/results.ts";

test("params are found whatever their case and hyphens, and null is absent", (t) => {
  const params = Params.of({ AuthTag: "user-a", "model-count": 3, Patterns: null, Deep: { OwnerTag: "x" } });
  t.is(params.text("auth-tag"), "user-a");
  t.is(params.integer("ModelCount"), 3);
  t.deepEqual(params.texts("patterns"), []);
  t.is(params.object("deep").text("owner-tag"), "x");
  t.is(params.text("absent"), "");
  t.false(params.has("patterns"));
});

test("when a parameter has two names the non-empty one counts", (t) => {
  t.is(Params.of({ "auth-tag": "", AuthTag: "user-a" }).text("auth-tag"), "user-a");
  t.is(Params.of({ Tag: "machine-1", AuthTag: "" }).text("auth-tag", "tag"), "machine-1");
});

for (const [what, read] of [
  ["a number for a string", () => Params.of({ name: 1 }).text("name")],
  ["a fraction for an integer", () => Params.of({ n: 1.5 }).integer("n")],
  ["a number beyond 2^53", () => Params.of({ n: 2 ** 53 }).integer("n")],
  ["a string for a flag", () => Params.of({ on: "yes" }).flag("on")],
  ["an object for a list", () => Params.of({ all: {} }).texts("all")],
  ["a list with a number", () => Params.of({ all: [1] }).texts("all")],
  ["a list for an object", () => Params.of({ o: [] }).object("o")],
  ["a list for the params", () => Params.of([])],
] as const) {
  test(`${what} is rejected as a bad request`, (t) => {
    t.is(t.throws(read, { instanceOf: RequestError })?.code, "bad request");
  });
}

test("results are written in the shape of the request; keys that are data stay", (t) => {
  const result = {
    "charm-url": "local:web-1",
    "dns-name": "n1",
    units: keyed({ "web/0": { "machine-id": "0" } }),
    NotifyWatcherId: "1",
    facades: verbatim([{ "some-key": 1 }]),
    absent: undefined,
  };
  t.deepEqual(JSON.parse(JSON.stringify(camelCased(result))), {
    CharmURL: "local:web-1",
    DNSName: "n1",
    Units: { "web/0": { MachineId: "0" } },
    NotifyWatcherId: "1",
    Facades: [{ "some-key": 1 }],
  });
  t.deepEqual(JSON.parse(JSON.stringify(result)), {
    "charm-url": "local:web-1",
    "dns-name": "n1",
    units: { "web/0": { "machine-id": "0" } },
    NotifyWatcherId: "1",
    facades: [{ "some-key": 1 }],
  });
});

test("J1: ids of watchers increase, are never reused, and belong to one type", (t) => {
  const resources = new Resources();
  const stopped: string[] = [];
  const standing = (name: string) => ({ stop: () => void stopped.push(name) });
  t.is(resources.add("AllWatcher", standing("a")), "1");
  t.is(resources.add("NotifyWatcher", standing("b")), "2");
  t.throws(() => resources.get("AllWatcher", "2"), { message: "unknown watcher id" });
  resources.stop("AllWatcher", "1");
  t.deepEqual(stopped, ["a"]);
  t.throws(() => resources.stop("AllWatcher", "1"), { message: "unknown watcher id" });
  t.is(resources.add("AllWatcher", standing("c")), "3");
});

test("J2: watchers are stopped when the connection ends, and so are later ones", (t) => {
  const resources = new Resources();
  const stopped: string[] = [];
  resources.add("AllWatcher", { stop: () => void stopped.push("a") });
  resources.stopAll();
  resources.add("AllWatcher", { stop: () => void stopped.push("late") });
  t.deepEqual(stopped, ["a", "late"]);
  t.is(resources.count, 0);
});

test("the number of watchers of a connection is limited", (t) => {
  const resources = new Resources();
  let stopped = 0;
  for (let n = 0; n < resourcesMax; n += 1) resources.add("AllWatcher", { stop: () => void (stopped += 1) });
  t.throws(() => resources.add("AllWatcher", { stop: () => void (stopped += 1) }), { instanceOf: RequestError });
  t.is(stopped, 1);
});

test("a role includes the rights of lower ones", (t) => {
  t.true(isAtLeast("admin", "operator"));
  t.true(isAtLeast("operator", "operator"));
  t.false(isAtLeast("read-only", "operator"));
});
