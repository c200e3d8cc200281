import test from "ava";
import { clockDifference } from "../../machines/manager/clock-difference.ts";

test("a clock that was read halfway differs by what it is ahead then, and by half of the time at most otherwise", (t) => {
  const asked = { askedAtMs: 10_000, tookMs: 100 };
  t.deepEqual(clockDifference({ ...asked, theirsMs: 10_050 }), { aheadMs: 0, errorMs: 50 });
  t.deepEqual(clockDifference({ ...asked, theirsMs: 3_610_050 }), { aheadMs: 3_600_000, errorMs: 50 });
  for (const readAtMs of [0, 100]) {
    const { aheadMs, errorMs } = clockDifference({ ...asked, theirsMs: 10_000 + readAtMs - 7_000 });
    t.true(Math.abs(aheadMs + 7_000) <= errorMs);
  }
});
