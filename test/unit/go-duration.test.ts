// Durations are read as Go's time.ParseDuration reads them.
import test from "ava";
import { goDurationMs, goDurationNanos } from "../../lib/go-duration.ts";

test("durations are sums of amounts with units, and may have a sign", (t) => {
  const right: readonly (readonly [string, number])[] = [
    ["0", 0],
    ["-0", 0],
    ["1h30m", 5_400e9],
    ["1.5s", 1.5e9],
    [".5ms", 0.5e6],
    ["1.s", 1e9],
    ["+2us", 2_000],
    ["-3\u00b5s", -3_000],
    ["4\u03bcs5ns", 4_005],
    ["1m1m", 120e9],
  ];
  for (const [text, nanos] of right) t.is(Math.abs((goDurationNanos(text) ?? Number.NaN) - nanos), 0, text);
  for (const wrong of ["", "1", "s", ".s", "1d", "1h 30m", "1h-30m", "00", "1e3s", "0x1s", "1S"])
    t.is(goDurationNanos(wrong), null, wrong);
  t.is(goDurationMs("-1s"), null);
  t.is(goDurationMs("1500us"), 1.5);
});
