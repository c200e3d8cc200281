import test from "ava";
import { LastResult } from "../../lib/last-result.ts";

test("a result is computed again when an input is another, or there are more or fewer", (t) => {
  let computed = 0;
  const last = new LastResult((..._inputs: unknown[]) => (computed += 1));
  t.is(last.of(), 1);
  t.is(last.of(), 1);
  const object = {};
  t.is(last.of("a", object), 2);
  t.is(last.of("a", object), 2);
  t.is(last.of("a", {}), 3);
  t.is(last.of("a"), 4);
  t.is(last.of("a", undefined), 5);
});

test("lists and maps are the same as long as their entries are, in their order", (t) => {
  const object = {};
  let computed = 0;
  const last = new LastResult((_found: ReadonlyMap<string, readonly unknown[]>) => (computed += 1));
  const ask = (...entries: [string, unknown[]][]): number => last.of(new Map(entries));
  t.is(ask(["a", [1, object]]), 1);
  t.is(ask(["a", [1, object]]), 1);
  t.is(ask(["a", [1, {}]]), 2);
  t.is(ask(["a", [1]]), 3);
  t.is(ask(["b", [1]]), 4);
  t.is(ask(["a", []], ["b", []]), 5);
  t.is(ask(["b", []], ["a", []]), 6);
});
