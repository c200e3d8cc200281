import test from "ava";
import fc from "fast-check";
import { jitterMs, nextHeartbeatMs } from "../../machines/dispatcher/heartbeat.ts";

test("B1: every period is within the jitter of the cluster's", (t) => {
  fc.assert(
    fc.property(
      fc.double({ min: 1.7e12, max: 1.9e12, noNaN: true }),
      fc.integer({ min: 1, max: 3_600_000 }),
      fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
      (nowMs, periodMs, chance) => {
        const next = nextHeartbeatMs(nowMs, periodMs, chance);
        // A clock of 2e12 ms has a resolution of a quarter of a microsecond.
        t.true(Math.abs(next - periodMs) <= jitterMs(periodMs) + 0.001, `${next} for ${periodMs}`);
      },
    ),
  );
});

test("B2: nodes are scheduled on common ticks, and on all of the jitter's", (t) => {
  const due = new Map<number, number>();
  for (let node = 0; node < 1_000; node += 1) {
    const nowMs = 1_750_000_000_000 + node * 0.731;
    const at = Math.round(nowMs + nextHeartbeatMs(nowMs, 5_000, (node * 0.618) % 1));
    t.is(at % 100, 0);
    due.set(at, (due.get(at) ?? 0) + 1);
  }
  t.true(due.size >= 9);
  t.true(Math.max(...due.values()) <= 250);
});
