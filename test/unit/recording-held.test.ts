// The order of steps that wait for earlier ones of other processes.
import test from "ava";
import fc from "fast-check";
import { Held } from "../../runtime/recording/held.ts";

test("items are applied in the order of their times, those of one time as they came", (t) => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 20 })), (times) => {
      const held = new Held(1_000);
      const applied: [number, number][] = [];
      for (const [at, ms] of times.entries()) held.add(ms, () => applied.push([ms, at]));
      held.releaseAll();
      t.deepEqual(
        applied,
        applied.toSorted(([a, first], [b, second]) => a - b || first - second),
      );
      t.is(applied.length, times.length);
    }),
  );
});

test("the place of an item is found in few comparisons, in whatever order they come", (t) => {
  const held = new Held(10_000);
  let comparisons = 0;
  const counted = (ms: number): number => ({ valueOf: () => ((comparisons += 1), ms) }) as unknown as number;
  for (let ms = 4_000; ms > 0; ms -= 1) held.add(counted(ms), () => undefined);
  t.true(comparisons < 4_000 * 50, `${comparisons} comparisons`);
});
