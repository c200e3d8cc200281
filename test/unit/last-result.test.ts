import test from "ava";
import { LastResult } from "../../lib/last-result.ts";

test("a result is computed again when an input is another, or there are more or fewer", (t) => {
  const last = new LastResult<number>();
  let computed = 0;
  const ask = (...inputs: unknown[]): number => last.of(inputs, () => (computed += 1));
  t.is(ask(), 1);
  t.is(ask(), 1);
  const object = {};
  t.is(ask("a", object), 2);
  t.is(ask("a", object), 2);
  t.is(ask("a", {}), 3);
  t.is(ask("a"), 4);
  t.is(ask("a", undefined), 5);
});
