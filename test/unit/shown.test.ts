import test from "ava";
import type { AnyStateMachine } from "xstate";
import { allCharts } from "../../cli/charts.ts";
import type { Shows } from "../../machines/chart.ts";
import { childrenOf, rootOf, transitionsOf, type AnyNode } from "../../runtime/observation/transition-ids.ts";
import { restored, shown, shownCharsMax } from "../../machines/shown.ts";

const value = {
  id: "n1",
  count: 3,
  big: 12n,
  none: null,
  missing: undefined,
  list: [1, { a: true }, undefined],
  byId: new Map([
    ["a", { n: 1, secret: "canary" }],
    ["b", { n: 2, secret: "canary" }],
  ]),
  names: new Set(["x", "y"]),
  odd: [Number.NaN, Number.POSITIVE_INFINITY, -0],
  nested: { deep: { value: 1, secret: "canary" }, secret: "canary" },
  tagged: { $map: [1], $$set: 2 },
  bytes: new TextEncoder().encode("canary"),
  secret: "canary",
};

test("only the listed fields are shown, also within fields, lists and maps", (t) => {
  t.is(shown(value, ["count", "id"]), `{"count":3,"id":"n1"}`);
  t.is(
    shown(value, ["nested.deep.value", "byId.n"]),
    `{"nested":{"deep":{"value":1}},"byId":{"$map":[["a",{"n":1}],["b",{"n":2}]]}}`,
  );
  t.is(shown({ list: [{ a: 1, b: 2 }, { a: 3 }] }, ["list.a"]), `{"list":[{"a":1},{"a":3}]}`);
  t.is(shown(value, ["unknown", "missing", "nested.unknown"]), `{"nested":{}}`);
  t.is(shown(value, []), "{}");
  t.is(shown(value, ["bytes"]), `{"bytes":{"$bytes":6}}`);
});

test("shown fields are restored to the same values, in the same order", (t) => {
  const paths = ["id", "count", "big", "none", "list", "byId", "names", "odd", "nested", "tagged"];
  const { fields, isWhole } = restored(shown(value, paths));
  t.true(isWhole);
  const { bytes: _, missing: __, secret: ___, ...whole } = value;
  t.deepEqual(fields, whole);
  t.is(shown(fields, paths), shown(value, paths));
  t.true(Object.is((fields["odd"] as readonly number[])[2], -0));
});

test("a text that is not shown keeps whether it is empty, and equal to another", (t) => {
  const paths = ["reason.$same", "exit.reason.$same"];
  const json = shown({ reason: "canary", exit: { reason: "canary", code: 1 } }, paths);
  t.regex(json, /^\{"reason":\{"\$same":\d+\},"exit":\{"reason":\{"\$same":\d+\}\}\}$/);
  const { fields, isWhole } = restored(json);
  t.true(isWhole);
  t.is(fields["reason"], (fields["exit"] as { reason: unknown }).reason);
  t.is(shown(fields, paths), json);
  t.is(shown({ reason: "" }, paths), `{"reason":""}`);
  t.not(shown({ reason: "one" }, paths), shown({ reason: "other" }, paths));
});

test("a field that is too large or too deep is cut, and the others are shown", (t) => {
  const huge = Array.from({ length: shownCharsMax }, (_, at) => `${at}`);
  t.is(shown({ huge, small: 1 }, ["huge", "small"]), `{"huge":{"$cut":true},"small":1}`);
  t.is(shown({ text: "x".repeat(shownCharsMax), small: 1 }, ["text", "small"]), `{"text":{"$cut":true},"small":1}`);
  const loop: { next?: object } = {};
  loop.next = loop;
  t.is(shown({ loop, small: 1 }, ["loop", "small"]), `{"loop":{"$cut":true},"small":1}`);
  t.false(restored(`{"huge":{"$cut":true},"small":1}`).isWhole);
  t.false(restored(`{"bytes":{"$bytes":6}}`).isWhole);
  t.deepEqual(restored(`{"$cut":true}`), { fields: {}, isWhole: false }, "in place of all fields");
  const forged = restored(`{"bytes":{"$bytes":8000000000}}`).fields["bytes"] as Uint8Array;
  t.is(forged.length, 0, "a length from a file takes no memory");
});

test("fields that cannot be restored are rejected", (t) => {
  t.throws(() => restored("[1]"), { message: /expected a JSON object/ });
  t.throws(() => restored("{"), { instanceOf: SyntaxError });
});

test("every chart decides which fields of its context and events are shown", async (t) => {
  const charts = await allCharts();
  t.true(charts.length >= 49);
  for (const { file, machine } of charts)
    t.not(
      (machine.schemas as { readonly shows: unknown }).shows,
      null,
      `${file}: add \`shows\` to its chart, with the fields that may leave the process; \`shows: {}\` for none`,
    );
});

/** Fields with texts of others, or with objects of the cluster: `$same` is the only way to show that one has changed. */
const freeText =
  /^(?:.*(?:reason|error|message|text|description|output|label|command|token|secret|password|payload|spec|pem|certificate)s?|err|why|how|env|args|data|config|changes|news|heldBecause|tag)$/i;

test("no chart shows a text that may quote a user's data", async (t) => {
  for (const { file, machine } of await allCharts()) {
    const { shows } = machine.schemas as { readonly shows: Shows | null };
    for (const path of [...(shows?.context ?? []), ...(shows?.events ?? [])])
      t.notRegex(path.split(".").at(-1) ?? "", freeText, `${file} shows ${path}: leave it out, or show ${path}.$same`);
  }
});

/** Names that a function destructures from its parameter of that kind, or reads from `context`. */
function readsOf(body: string): Readonly<Record<"context" | "event" | "params", readonly string[]>> {
  const namesIn = (list: string): readonly string[] =>
    list.split(",").flatMap((part) => /^\s*(\w+)/.exec(part)?.slice(1) ?? []);
  const [, destructured = ""] = /\(\{ context: \{([^}]*)\} \}/.exec(body) ?? [];
  const [, params = ""] =
    /^\((?:_|\{[^}]*\}),\s*\{([^}]*)\}/.exec(body.replaceAll(/\s+/g, " ").replace("( ", "(")) ?? [];
  const read = Array.from(body.matchAll(/context\??\.(\w+)/g), ([, name = ""]) => name);
  const event = Array.from(body.matchAll(/event\.(\w+)/g), ([, name = ""]) => name).filter((name) => name !== "type");
  return { context: [...namesIn(destructured), ...read], event, params: namesIn(params) };
}

const functionsOf = (machine: AnyStateMachine, kind: "guards" | "delays"): readonly (readonly [string, string])[] =>
  Object.entries(machine.implementations[kind]).flatMap(([name, each]) =>
    typeof each === "function" ? [[name, String(each)] as const] : [],
  );

/** Guards whose params come from the event, with the functions that give them. */
function guardsOfEvents(node: AnyNode): readonly (readonly [string, string])[] {
  const own = transitionsOf(node).flatMap(({ transition: { guard } }) => {
    const { type = "", params } = (typeof guard === "object" ? guard : {}) as { type?: string; params?: unknown };
    return typeof params === "function" ? [[type, String(params)] as const] : [];
  });
  return [...own, ...childrenOf(node).flatMap(guardsOfEvents)];
}

test("every field by which a guard or a delay decides is shown, so that a recording can be verified", async (t) => {
  let read = 0;
  for (const { file, machine } of await allCharts()) {
    const { shows } = machine.schemas as { readonly shows: Shows | null };
    const roots = (paths: readonly string[] = []): ReadonlySet<string> =>
      new Set(paths.map((path) => path.split(".")[0] ?? ""));
    const [context, events] = [roots(shows?.context), roots(shows?.events)];
    const ofEvents = new Map(guardsOfEvents(rootOf(machine)));
    for (const kind of ["guards", "delays"] as const)
      for (const [name, body] of functionsOf(machine, kind)) {
        const fields = readsOf(body);
        for (const field of fields.context) t.true(context.has(field), `${file}: ${name} reads context.${field}`);
        for (const field of fields.event) t.true(events.has(field), `${file}: ${name} reads event.${field}`);
        read += fields.context.length + fields.event.length;
        const params = ofEvents.get(name);
        if (kind === "delays" || params === undefined) continue;
        // Named by the params, or else all of them; the others are constants of the chart.
        const named = Array.from(params.matchAll(/event\.(\w+)/g), ([, field = ""]) => field);
        const given =
          named.length > 0 ? named : fields.params.filter((field) => !new RegExp(`\\b${field}: `).test(params));
        for (const field of given) t.true(events.has(field), `${file}: ${name} reads ${field} of an event`);
        read += given.length;
      }
  }
  t.true(read > 90, `${read} fields`);
});
