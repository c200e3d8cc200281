// Configurations by a plugin's schema: the golden vectors of docs/reference/nomad-driver-protocol.md §3.6, then invalid ones.
import { readFileSync } from "node:fs";
import test from "ava";
import {
  Array as ArraySpec,
  Attr,
  Block,
  BlockAttrs,
  BlockList,
  BlockMap,
  BlockSet,
  Default,
  Literal,
  Object as ObjectSpec,
  Spec,
} from "../../proto/gen/nomad.ts";
import {
  encodeConfig,
  environmentScope,
  evaluate,
  problemText,
  unpack,
  type ConfigInput,
} from "../../lib/hclspec/index.ts";

/** Expressions and their values as hex, or `error`; the interop test compares them with the libraries. */
const expressions = JSON.parse(
  readFileSync(new URL("../fixtures/hcl-expressions.json", import.meta.url), "utf8"),
) as readonly (readonly [string, string])[];

const attr = (type: string, name = "", required = false): Spec =>
  Spec.create({ Attr: Attr.create({ name, type, required }) });
const literal = (value: string): Spec => Spec.create({ literal: Literal.create({ value }) });
const otherwise = (primary: Spec, value: string): Spec =>
  Spec.create({ default: Default.create({ primary, default: literal(value) }) });
const object = (attributes: Record<string, Spec>): Spec => Spec.create({ object: ObjectSpec.create({ attributes }) });
const block = (nested: Spec, name = "", required = false): Spec =>
  Spec.create({ blockValue: Block.create({ name, required, nested }) });

const nested = object({ f: attr("string") });
const vault = otherwise(
  block(object({ enabled: otherwise(attr("bool", "enabled"), "true"), sel: attr("string") }), "v"),
  "{ enabled = true }",
);

/** A single key, its source text, and the bytes. */
const vectors: readonly (readonly [Record<string, Spec> | Spec, ConfigInput, string])[] = [
  [{ s: attr("string") }, { s: "hi" }, "81a173a26869"],
  [{ s: attr("string") }, {}, "81a173c0"],
  [{ s: attr("string") }, { s: null }, "81a173c0"],
  [{ s: attr("string") }, { s: 12 }, "81a173a23132"],
  [{ s: attr("string") }, { s: true }, "81a173a474727565"],
  [{ s: attr("string") }, { s: "x".repeat(40) }, `81a173d928${"78".repeat(40)}`],
  ...(
    [
      [0, "00"],
      [127, "7f"],
      [128, "cc80"],
      [255, "ccff"],
      [256, "cd0100"],
      [65_535, "cdffff"],
      [65_536, "ce00010000"],
      [2 ** 32, "cf0000000100000000"],
      [2n ** 63n - 1n, "cf7fffffffffffffff"],
      [2n ** 63n, "b3" + Buffer.from("9223372036854775808").toString("hex")],
      [-1, "ff"],
      [-32, "e0"],
      [-33, "d0df"],
      [-128, "d080"],
      [-129, "d1ff7f"],
      [1.5, "cb3ff8000000000000"],
      [3.0, "03"],
      [1e2, "64"],
      ["2", "02"],
      [0.1, "a3302e31"],
    ] as const
  ).map(([written, hex]) => [{ n: attr("number") }, { n: written }, `81a16e${hex}`] as const),
  [{ b: attr("bool") }, { b: true }, "81a162c3"],
  [{ b: attr("bool") }, { b: "1" }, "81a162c3"],
  [{ b: attr("bool") }, { b: "false" }, "81a162c2"],
  [{ l: attr("list(string)") }, { l: ["a", 1, true] }, "81a16c93a161a131a474727565"],
  [{ l: attr("list(string)") }, { l: [] }, "81a16c90"],
  [{ l: attr("list(map(string))") }, { l: [{ b: "1", a: 2 }, { c: "d" }] }, "81a16c9282a161a132a162a13181a163a164"],
  [{ l: attr("set(string)") }, { l: ["b", "a", "b", "10", "9"] }, "81a16c94a23130a139a161a162"],
  [{ m: attr("map(string)") }, { m: { b: 1, a: "x" } }, "81a16d82a161a178a162a131"],
  [{ o: attr("object({a=string,b=number})") }, { o: { b: 1, a: "x", zz: 3 } }, "81a16f82a161a178a16201"],
  [{ o: attr("tuple([string,number])") }, { o: ["a", "1"] }, "81a16f92a16101"],
  [{ a: attr("any") }, { a: [1, "b", { c: null }] }, "81a1619301a16281a163c0"],
  [{ l: attr("list(any)") }, { l: ["a", 1] }, "81a16c92a161a131"],
  [{ d: otherwise(attr("string", "d"), '"5m"') }, {}, "81a164a2356d"],
  [{ d: otherwise(attr("string", "d"), '"5m"') }, { d: null }, "81a164a2356d"],
  [{ b: block(nested) }, {}, "81a162c0"],
  [{ b: block(nested) }, { b: [] }, "81a162c0"],
  [{ b: block(nested) }, { b: null }, "81a162c0"],
  [{ b: block(nested) }, { b: {} }, "81a16281a166c0"],
  [{ b: block(nested) }, { b: [{}] }, "81a16281a166c0"],
  [{ v: vault }, {}, "81a17681a7656e61626c6564c3"],
  [{ v: vault }, { v: {} }, "81a17682a7656e61626c6564c3a373656cc0"],
  [{ b: Spec.create({ blockList: BlockList.create({ nested }) }) }, {}, "81a16290"],
  [
    { b: Spec.create({ blockList: BlockList.create({ nested }) }) },
    { b: [{ f: "x" }, { f: "y" }] },
    "81a1629281a166a17881a166a179",
  ],
  [
    { b: Spec.create({ blockSet: BlockSet.create({ nested }) }) },
    { b: [{ f: "y" }, { f: "x" }, { f: "y" }] },
    "81a1629281a166a17881a166a179",
  ],
  [{ b: Spec.create({ blockMap: BlockMap.create({ labels: ["k"], nested }) }) }, {}, "81a16280"],
  [
    { b: Spec.create({ blockMap: BlockMap.create({ labels: ["k"], nested }) }) },
    { b: { k1: { f: "x" }, a: { f: "y" } } },
    "81a16282a16181a166a179a26b3181a166a178",
  ],
  [{ o: Spec.create({ blockAttrs: BlockAttrs.create({ type: "string" }) }) }, {}, "81a16fc0"],
  [{ o: Spec.create({ blockAttrs: BlockAttrs.create({ type: "string" }) }) }, { o: {} }, "81a16f80"],
  [
    { o: Spec.create({ blockAttrs: BlockAttrs.create({ type: "string" }) }) },
    { o: { b: 1, a: "x" } },
    "81a16f82a161a178a162a131",
  ],
  [
    Spec.create({ array: ArraySpec.create({ values: [attr("string", "a"), attr("number", "b")] }) }),
    { a: "x", b: 2 },
    "92a17802",
  ],
  [{ out: attr("string", "in") }, { in: "z" }, "81a36f7574a17a"],
];

const specOf = (of: Record<string, Spec> | Spec): Spec => ("typeName" in of || isSpec(of) ? (of as Spec) : object(of));

function isSpec(of: Record<string, Spec> | Spec): of is Spec {
  return of.constructor.name === "Spec";
}

test("configurations are encoded byte for byte as Nomad encodes them", (t) => {
  t.true(vectors.length > 50);
  for (const [spec, config, hex] of vectors) {
    const outcome = encodeConfig(specOf(spec), config);
    t.is(outcome.kind, "encoded", JSON.stringify(outcome));
    if (outcome.kind === "encoded") t.is(Buffer.from(outcome.bytes).toString("hex"), hex, Object.keys(spec).join());
  }
});

test("templates are expanded from the environment, and their escapes are literal", (t) => {
  const scope = environmentScope({ NOMAD_TASK_NAME: "web", "meta.color": "red", "odd-name": "x" });
  const read = (s: string): unknown => {
    const outcome = encodeConfig(object({ s: attr("any") }), { s }, scope);
    return outcome.kind === "encoded" ? (unpack(outcome.bytes) as { s: unknown }).s : outcome;
  };
  t.is(read("a$${X}b %%{x"), "a${X}b %{x");
  t.is(read("${NOMAD_TASK_NAME}-1"), "web-1");
  t.is(read("${meta.color}"), "red");
  t.is(read('${env["odd-name"]}'), "x");
  t.is(read("${2 + 2}"), 4);
  t.is(read('%{ if NOMAD_TASK_NAME == "web" }yes%{ else }no%{ endif }!'), "yes!");
  const unknown = encodeConfig(object({ s: attr("string") }), { s: "${WHO}" }, scope);
  t.deepEqual(unknown, {
    kind: "invalid",
    problems: [{ path: "s", message: 'there is no variable named "WHO"' }],
  });
});

test("every error in a configuration is reported with its path", (t) => {
  const spec = object({
    image: attr("string", "image", true),
    count: attr("number"),
    ports: Spec.create({
      blockList: BlockList.create({
        name: "ports",
        minItems: 2,
        nested: object({ label: attr("string", "label", true), to: attr("number") }),
      }),
    }),
    labels: attr("map(number)"),
    auth: block(object({ user: attr("string", "user", true) })),
  });
  const outcome = encodeConfig(spec, {
    count: "many",
    ports: [{ to: true }],
    labels: { a: 1, b: "x" },
    auth: {},
    extra: 1,
  });
  t.is(outcome.kind, "invalid");
  if (outcome.kind !== "invalid") return;
  t.deepEqual(outcome.problems.map(problemText).toSorted(), [
    'auth.user: Missing required argument: The argument "user" is required',
    'count: a number is required, not the string "many"',
    'extra: No argument or block type is named "extra"',
    'image: Missing required argument: The argument "image" is required',
    'labels.b: a number is required, not the string "x"',
    "ports: Insufficient ports blocks: at least 2 required",
    'ports[0].label: Missing required argument: The argument "label" is required',
    "ports[0].to: a number is required, not the bool true",
  ]);
});

test("inconvertible kinds are rejected", (t) => {
  const refused: readonly (readonly [string, ConfigInput])[] = [
    ["number", "0x10"],
    ["number", true],
    ["bool", 1],
    ["bool", "yes"],
    ["list(string)", "a"],
    ["list(string)", { a: 1 }],
    ["map(string)", ["a"]],
    ["string", ["a"]],
    ["tuple([string])", ["a", "b"]],
    ["object({a=string})", { b: "x" }],
    ["list(any)", [true, 1]],
  ];
  for (const [type, value] of refused) {
    t.is(
      encodeConfig(object({ v: attr(type) }), { v: value }).kind,
      "invalid",
      `${type} from ${JSON.stringify(value)}`,
    );
  }
});

test("an invalid schema is reported as the plugin's fault", (t) => {
  for (const spec of [
    object({ a: Spec.create() }),
    object({ a: attr("lizt(string)") }),
    object({ a: attr("") }),
    object({ a: otherwise(attr("string"), '"x"') }),
    object({ a: literal("nope(") }),
    object({ a: Spec.create({ blockMap: BlockMap.create({ nested }) }) }),
  ]) {
    const outcome = encodeConfig(spec, {});
    t.is(outcome.kind, "bad-schema", JSON.stringify(Spec.toJson(spec)));
  }
});

test("literals are expressions with functions and no variables", (t) => {
  const read = (text: string): unknown => {
    const outcome = encodeConfig(object({ v: literal(text) }), {});
    return outcome.kind === "encoded" ? (unpack(outcome.bytes) as { v: unknown }).v : outcome;
  };
  t.is(read('"5m"'), "5m");
  t.is(read("42"), 42);
  t.is(read("-1.5 * 2"), -3);
  t.deepEqual(read('["a", 1, true, null]'), ["a", 1, true, null]);
  t.deepEqual(read('{ enabled = true, "k" : 2 }'), { enabled: true, k: 2 });
  t.is(read('upper("ab") == "AB" ? max(1, 3, 2) : 0'), 3);
  t.is(read('length([1, 2]) + strlen("abc")'), 5);
  t.is(read('jsonencode({b = [1], a = "x"})'), '{"a":"x","b":[1]}');
  t.is(read("<<-EOT\n  one\n    two\n  EOT\n"), "one\n  two\n");
  t.is(read('"a\\tb\\u0041"'), "a\tbA");
  t.throws(() => evaluate("1 / 0"), { message: /zero/ });
  t.throws(() => evaluate("[for x in y : x]"), { message: /no variable named "y"/ });
  t.throws(() => evaluate("x"), { message: /no variable named "x"/ });
});

test("expressions evaluate to the values that Nomad's libraries give", (t) => {
  for (const [text, expected] of expressions) {
    const outcome = encodeConfig(object({ x: literal(text) }), {});
    // The object around the value is a map of one key.
    const found = outcome.kind === "encoded" ? Buffer.from(outcome.bytes).toString("hex").slice(6) : "error";
    t.is(found, expected, text);
  }
  t.true(expressions.length > 150);
});

test("nested loops visit no more elements than an agent has time for", (t) => {
  const ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
  const nested = (depth: number): string => (depth === 0 ? "1" : `[for x${depth} in ${ten} : ${nested(depth - 1)}]`);
  t.notThrows(() => evaluate(nested(4)));
  t.throws(() => evaluate(nested(12)), { message: /visit more than 100000 elements/ });
  t.throws(() => evaluate(`${"!".repeat(10_000)}true`), { message: /nested too deeply/ });
  t.throws(() => evaluate(`[[]]${"[*]".repeat(10_000)}`), { message: /nested too deeply/ });
});

test("data written by Go is read, and truncated data is rejected", (t) => {
  const bytes = (hex: string): Uint8Array => Buffer.from(hex, "hex");
  t.deepEqual(unpack(bytes("82a161d1012ca162da000378797a")), { a: 300, b: "xyz" });
  t.is(unpack(bytes("cfffffffffffffffff")), 2n ** 64n - 1n);
  t.deepEqual(unpack(bytes("c40201ff")), Uint8Array.of(1, 255));
  t.is(unpack(bytes("cb3ff8000000000000")), 1.5);
  for (const hex of ["81a161", "a5616263", "c1", "0101", `${"91".repeat(200)}01`])
    t.throws(() => unpack(bytes(hex)), { name: "MsgpackError" }, hex);
});
