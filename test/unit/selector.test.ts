import { createHash } from "node:crypto";
import test from "ava";
import fc from "fast-check";
import { sha256, shortDigest } from "../../machines/policy/digest.ts";
import { SelectorIndex } from "../../machines/policy/selector-index.ts";
import {
  matchesSelector,
  parseSelector,
  selectorId,
  selectorText,
  type Labels,
  type Selector,
} from "../../machines/policy/selector.ts";

function parsed(text: string): Selector {
  const outcome = parseSelector(text);
  if (outcome.kind === "invalid") throw new Error(`${outcome.at}: ${outcome.problem}`);
  return outcome.selector;
}

const key = fc.constantFrom("a", "b", "c", "service", "node.labels.zone", "in", "has");
const value = fc.constantFrom("", "x", "xy", "yx", "o'clock", 'a "b"');
const labels: fc.Arbitrary<Labels> = fc.dictionary(key, value, { maxKeys: 4 });
const selectors = fc.letrec<{ any: Selector }>((tie) => ({
  any: fc.oneof(
    { maxDepth: 4 },
    fc.constant<Selector>({ kind: "all" }),
    key.map<Selector>((each) => ({ kind: "has", key: each })),
    fc
      .tuple(key, fc.uniqueArray(value, { maxLength: 3 }))
      .map<Selector>(([each, values]) => ({ kind: "in", key: each, values: values.toSorted() })),
    fc
      .tuple(fc.constantFrom("contains" as const, "starts" as const, "ends" as const), key, value)
      .map<Selector>(([kind, each, text]) => ({ kind, key: each, value: text })),
    tie("any").map<Selector>((of) => ({ kind: "not", of })),
    fc
      .tuple(fc.constantFrom("and" as const, "or" as const), fc.array(tie("any"), { minLength: 1, maxLength: 3 }))
      .map<Selector>(([kind, of]) => ({ kind, of })),
  ),
})).any;

test("a selector matches exactly its labels", (t) => {
  const web = { service: "web", zone: "north-1", public: "" };
  const cases: readonly (readonly [string, boolean])[] = [
    ["", true],
    ["all()", true],
    ["!all()", false],
    ["service == 'web'", true],
    ['service == "db"', false],
    ["service != 'db' && has(public)", true],
    ["missing != 'x'", true],
    ["missing == ''", false],
    ["service in { 'db', 'web' }", true],
    ["service not in {'db'}", true],
    ["service in {}", false],
    ["zone starts with 'north'", true],
    ["zone ends with '-2' || zone contains 'th-'", true],
    ["!has(public) || (service == 'web' && !(zone starts with 'south'))", true],
    ["has(toString)", false],
  ];
  for (const [text, expected] of cases) t.is(matchesSelector(parsed(text), web), expected, text);
});

test("a selector that cannot be parsed is rejected with the position of the error", (t) => {
  const cases: readonly (readonly [string, number, RegExp])[] = [
    ["service = 'web'", 9, /expected ==/],
    ["service == web", 12, /in quotes/],
    ["service == 'web", 12, /missing closing quote/],
    ["has(", 5, /expected a label in has/],
    ["hat(x)", 1, /unknown function 'hat'/],
    ["(a == 'b'", 10, /expected '\)'/],
    ["a == 'b' c", 10, /unexpected/],
    ["a == 'b' &&", 12, /expected a label/],
    ["a not 'b'", 7, /expected 'in'/],
    ["a starts 'b'", 10, /expected 'with'/],
    ["a toString 'b'", 3, /expected ==/],
    ["!".repeat(200), 51, /levels deep/],
    ["(".repeat(5_000), 1, /longer than/],
  ];
  for (const [text, at, problem] of cases) {
    const outcome = parseSelector(text);
    t.is(outcome.kind, "invalid", text);
    if (outcome.kind === "invalid") {
      t.is(outcome.at, at, text);
      t.regex(outcome.problem, problem);
    }
  }
});

test("S1: the canonical text has the same meaning and is stable", (t) => {
  fc.assert(
    fc.property(selectors, labels, (selector, some) => {
      const text = selectorText(selector);
      const again = parsed(text);
      t.is(matchesSelector(again, some), matchesSelector(selector, some), text);
      t.is(selectorText(parsed(selectorText(again))), selectorText(again));
    }),
    { numRuns: 500 },
  );
});

test("selectors that differ only in notation have one id", (t) => {
  const ids = ["a=='x'&&b  ==  'y'", "(b == 'y') && a == \"x\"", "a == 'x' && (b == 'y' && a == 'x')"].map((text) =>
    selectorId("s", parsed(text)),
  );
  t.is(new Set(ids).size, 1);
  t.regex(ids[0] as string, /^s[a-z2-7]{24}$/);
  t.not(selectorId("s", parsed("a == 'x'")), selectorId("s", parsed("a == 'y'")));
});

test("S2: no text makes the parser do anything but answer", (t) => {
  const scraps = fc.array(
    fc.oneof(
      fc.constantFrom(
        "==",
        "!=",
        "!",
        "&&",
        "||",
        "(",
        ")",
        "{",
        "}",
        ",",
        "'",
        '"',
        " in ",
        " not ",
        "has(",
        "a",
        " ",
      ),
      fc.string({ maxLength: 3 }),
    ),
  );
  fc.assert(
    fc.property(scraps, (parts) => {
      const outcome = parseSelector(parts.join(""));
      t.true(outcome.kind === "parsed" || outcome.at >= 1);
    }),
    { numRuns: 1_000 },
  );
});

test("digests are SHA-256", (t) => {
  fc.assert(
    fc.property(fc.string({ maxLength: 300, unit: "grapheme" }), (text) => {
      t.is(Buffer.from(sha256(text)).toString("hex"), createHash("sha256").update(text).digest("hex"));
    }),
    { numRuns: 50 },
  );
  t.regex(shortDigest("x"), /^[a-z2-7]{24}$/);
});

test("I1: the index has the current matches through all additions, changes and removals, and reports each change once", (t) => {
  const step = fc.oneof(
    fc.tuple(fc.constant("item" as const), fc.constantFrom("1", "2", "3"), labels),
    fc.tuple(fc.constant("gone" as const), fc.constantFrom("1", "2", "3")),
    fc.tuple(fc.constant("selector" as const), selectors),
    fc.tuple(fc.constant("dropped" as const), fc.nat(5)),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
      const told = new Set<string>();
      const index = new SelectorIndex((selector, item, matches) => {
        const pair = `${selector} ${item}`;
        t.is(told.has(pair), !matches);
        if (matches) told.add(pair);
        else told.delete(pair);
      });
      const items = new Map<string, Labels>();
      const known = new Map<string, Selector>();
      for (const each of steps) {
        if (each[0] === "item") {
          items.set(each[1], each[2]);
          index.setItem(each[1], each[2]);
        } else if (each[0] === "gone") {
          items.delete(each[1]);
          index.removeItem(each[1]);
        } else if (each[0] === "selector") {
          const id = selectorId("s", each[1]);
          known.set(id, each[1]);
          index.addSelector(id, each[1]);
        } else {
          const id = [...known.keys()][each[1]];
          if (id === undefined) continue;
          known.delete(id);
          index.removeSelector(id);
          for (const pair of told) if (pair.startsWith(`${id} `)) told.delete(pair);
        }
      }
      for (const [id, selector] of known) {
        const expected = [...items].filter(([, of]) => matchesSelector(selector, of)).map(([item]) => item);
        t.deepEqual([...index.matching(id)].toSorted(), expected.toSorted());
        for (const item of expected) t.true(told.has(`${id} ${item}`) && index.matchedBy(item).has(id));
      }
    }),
    { numRuns: 300 },
  );
});

test("a changed label evaluates only the selectors that name it", (t) => {
  const index = new SelectorIndex(() => undefined);
  for (let at = 0; at < 1_000; at++) {
    index.addSelector(`s${at}`, parsed(`service == 's${at}' && zone != 'x'`));
    index.setItem(`i${at}`, { service: `s${at}`, node: "n" });
  }
  index.asked = 0;
  index.setItem("i7", { service: "s8", node: "n" });
  t.true(index.asked <= 2, `${index.asked}`);
  t.deepEqual([...index.matchedBy("i7")], ["s8"]);
});
