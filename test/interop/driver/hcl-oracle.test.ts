// Configurations by schemas, compared with Nomad's own code, with which its agent reads and encodes them: the same bytes for
// the same configuration, and errors for the same ones. Schemas and configurations are drawn; a failure prints its seed.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import test from "ava";
import fc from "fast-check";
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
} from "../../../proto/gen/nomad.ts";
import { encodeConfig, type ConfigInput } from "../../../lib/hclspec/index.ts";
import { peerPath, peersMissing } from "../go/peers.ts";

const missing = peersMissing("nomad-hcl");

/** Each answer of the libraries: bytes in hex, or `error: …`. */
async function asked(cases: readonly (readonly [Spec, ConfigInput])[]): Promise<readonly string[]> {
  const child = spawn(peerPath("nomad-hcl"), [], { stdio: ["pipe", "pipe", "inherit"] });
  let text = "";
  child.stdout.on("data", (chunk: Buffer) => (text += chunk.toString("utf8")));
  for (const [spec, config] of cases) child.stdin.write(`${JSON.stringify({ spec: Spec.toJson(spec), config })}\n`);
  child.stdin.end();
  await new Promise((resolve) => child.once("close", resolve));
  // Errors may contain newlines.
  return text.split(/\n(?=error: |[0-9a-f]+\n|[0-9a-f]+$)/).map((line) => line.trimEnd());
}

function ours(spec: Spec, config: ConfigInput): string {
  const outcome = encodeConfig(spec, config);
  return outcome.kind === "encoded" ? Buffer.from(outcome.bytes).toString("hex") : "error";
}

const name = fc.constantFrom("a", "b", "c", "dd");
const anyName = fc.constantFrom("a", "b", "c", "dd", "in1", "in2");
const scalarType = fc.constantFrom("string", "number", "bool");
const typeText = fc.oneof(
  scalarType,
  scalarType.map((of) => `list(${of})`),
  scalarType.map((of) => `set(${of})`),
  scalarType.map((of) => `map(${of})`),
  scalarType.map((of) => `list(map(${of}))`),
  fc.constantFrom("object({a=string,b=number})", "tuple([string,number])", "any"),
);

const attribute = fc
  .record({ type: typeText, required: fc.boolean() })
  .map((attr) => Spec.create({ Attr: Attr.create(attr) }));

/** A block with an explicit name, for places that imply none: never a name that another place implies. */
const namedAttribute = fc
  .record({ name: fc.constantFrom("in1", "in2"), type: scalarType })
  .map((attr) => Spec.create({ Attr: Attr.create({ ...attr, required: false }) }));

const literals = ["1", '"x"', "true", "null", '["a", 2]', "{ a = 1, b = [true] }", "max(1, 2) * 1.5", 'upper("é")'];

const { object } = fc.letrec<{ object: Spec; field: Spec }>((tie) => ({
  object: fc
    .dictionary(name, tie("field"), { maxKeys: 3 })
    .map((attributes) => Spec.create({ object: ObjectSpec.create({ attributes }) })),
  field: fc.oneof(
    { maxDepth: 3, depthSize: "small" },
    attribute,
    fc.record({ primary: namedAttribute, value: fc.constantFrom(...literals) }).map(({ primary, value }) =>
      Spec.create({
        default: Default.create({ primary, default: Spec.create({ literal: Literal.create({ value }) }) }),
      }),
    ),
    fc.constantFrom(...literals).map((value) => Spec.create({ literal: Literal.create({ value }) })),
    fc
      .array(namedAttribute, { minLength: 1, maxLength: 2 })
      .map((values) => Spec.create({ array: ArraySpec.create({ values }) })),
    scalarType.map((type) => Spec.create({ blockAttrs: BlockAttrs.create({ type }) })),
    tie("object").map((nested) => Spec.create({ blockValue: Block.create({ nested }) })),
    tie("object").map((nested) => Spec.create({ blockList: BlockList.create({ nested, maxItems: 2 }) })),
    namedAttribute.map((field) =>
      Spec.create({
        blockSet: BlockSet.create({
          nested: Spec.create({ object: ObjectSpec.create({ attributes: { f: field } }) }),
        }),
      }),
    ),
    namedAttribute.map((field) =>
      Spec.create({
        blockMap: BlockMap.create({
          labels: ["k"],
          nested: Spec.create({ object: ObjectSpec.create({ attributes: { f: field } }) }),
        }),
      }),
    ),
  ),
}));

const scalar: fc.Arbitrary<ConfigInput> = fc.oneof(
  fc.constantFrom(
    "",
    "x",
    "true",
    "1",
    "0",
    "12.50",
    "1e3",
    "0x10",
    "é",
    "$${a}",
    "${1 + 1}",
    '${"a"}b',
    "%{ if true }y%{ endif }",
  ),
  fc.integer({ min: -70_000, max: 70_000 }),
  fc.constantFrom(0.5, 0.1, -1.25, 2 ** 40, 1e20, -(2 ** 33)),
  fc.boolean(),
  fc.constant(null),
);
const value: fc.Arbitrary<ConfigInput> = fc.oneof(
  { arbitrary: scalar, weight: 4 },
  fc.array(scalar, { maxLength: 3 }),
  fc.dictionary(anyName, scalar, { maxKeys: 3 }),
  fc.array(fc.dictionary(anyName, scalar, { maxKeys: 2 }), { maxLength: 2 }),
  fc.dictionary(anyName, fc.dictionary(anyName, scalar, { maxKeys: 2 }), { maxKeys: 2 }),
);
const config = fc.dictionary(anyName, value, { maxKeys: 3 });

/** Expressions with the values that our unit test expects: hex, or `error`. */
const expressions = JSON.parse(
  readFileSync(new URL("../../fixtures/hcl-expressions.json", import.meta.url), "utf8"),
) as readonly (readonly [string, string])[];
const expressionsTitle = "the libraries of Nomad's agent evaluate expressions to the values that our tests expect";
if (missing !== null) test.skip(`${expressionsTitle}: ${missing}`, () => {});
else
  test(expressionsTitle, async (t) => {
    const cases = expressions.map(([value]) => {
      const attributes = { x: Spec.create({ literal: Literal.create({ value }) }) };
      return [Spec.create({ object: ObjectSpec.create({ attributes }) }), {}] as const;
    });
    const theirs = await asked(cases);
    const found = theirs.map((answer) => (answer.startsWith("error: ") ? "error" : answer.slice(6)));
    t.deepEqual(
      expressions.map(([text], at) => [text, found[at]]),
      expressions.map((each) => [...each]),
    );
  });

const title = "configurations are read and encoded as by the libraries of Nomad's agent";
if (missing !== null) test.skip(`${title}: ${missing}`, () => {});
else
  test(title, async (t) => {
    const seed = Number(process.env["SEED"] ?? 20_261_121);
    const cases = fc.sample(fc.tuple(object, config), { numRuns: 3_000, seed });
    const theirs = await asked(cases);
    t.is(theirs.length, cases.length);
    let agreed = 0;
    const differences: string[] = [];
    cases.forEach(([spec, given], at) => {
      const expected = theirs[at] as string;
      const found = ours(spec, given);
      if (found !== "error") agreed += 1;
      if (found === "error" ? expected.startsWith("error: ") : found === expected) return;
      const what = `${JSON.stringify(Spec.toJson(spec))} of ${JSON.stringify(given)}`;
      differences.push(`SEED=${seed} case ${at}: ${what}: ${found}, not ${expected}`);
    });
    t.deepEqual(differences, []);
    t.true(agreed > 300, `${agreed} of the configurations are valid`);
  });
