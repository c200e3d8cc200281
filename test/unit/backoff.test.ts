import test from "ava";
import { backoffMs, drawBelow, drawUpperHalf } from "../../lib/backoff.ts";
import { SimRandom } from "../../runtime/sim/random.ts";

const failures = [0, 1, 2, 3, 4, 5, 5_000];

test("the bound doubles with each failure up to its maximum", (t) => {
  const bounds = failures.map((count) => backoffMs({ stepMs: 100, msMax: 1_000 }, count));
  t.deepEqual(bounds, [100, 100, 200, 400, 800, 1_000, 1_000]);
});

test("an offset is added to the doubled step, below the maximum", (t) => {
  const bounds = failures.map((count) => backoffMs({ stepMs: 5_000, offsetMs: 5_000, msMax: 50_000 }, count));
  t.deepEqual(bounds, [10_000, 10_000, 15_000, 25_000, 45_000, 50_000, 50_000]);
});

test("a wait is drawn below the bound, or from its upper half", (t) => {
  const random = new SimRandom("backoff");
  const drawn = (draw: (boundMs: number) => number): readonly number[] =>
    Array.from({ length: 1_000 }, () => draw(100)).toSorted((a, b) => a - b);
  const below = drawn(drawBelow(random));
  t.true((below[0] as number) >= 0 && (below[0] as number) < 5 && (below[999] as number) < 100);
  const upper = drawn(drawUpperHalf(random));
  t.true((upper[0] as number) >= 50 && (upper[0] as number) < 55 && (upper[999] as number) < 100);
});
