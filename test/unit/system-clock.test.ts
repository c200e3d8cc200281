// The machine's clock: waits longer than Node's timers support (runtime/system/clock.ts).
import test from "ava";
import { SystemClock } from "../../runtime/system/clock.ts";

function wait(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

test("a wait of more than 24.8 days does not fire at once, and can be cancelled", async (t) => {
  const clock = new SystemClock();
  const fired: string[] = [];
  const timers = [2 ** 31, 600 * 3_600_000, Infinity].map((ms) => clock.setTimeout(() => fired.push(String(ms)), ms));
  await wait(50);
  t.deepEqual(fired, []);
  for (const timer of timers) clock.clearTimeout(timer);
});

test("a wait in several parts ends once, after all of them", async (t) => {
  const clock = new SystemClock(10);
  const from = performance.now();
  let times = 0;
  await new Promise<void>((resolve) => {
    clock.setTimeout(() => {
      times += 1;
      resolve();
    }, 45);
  });
  // Timers may fire a millisecond early for each part.
  t.true(performance.now() - from >= 40);
  await wait(30);
  t.is(times, 1);
});

test("a wait in several parts can be cancelled in any of them", async (t) => {
  const clock = new SystemClock(10);
  let times = 0;
  for (const afterMs of [0, 15, 25]) {
    const timer = clock.setTimeout(() => (times += 1), 500);
    await wait(afterMs);
    clock.clearTimeout(timer);
  }
  await wait(600);
  t.is(times, 0);
});
