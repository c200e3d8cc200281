// Times and durations of messages, as milliseconds and back.
import test from "ava";
import fc from "fast-check";
import { Duration, Timestamp } from "../../proto/gen/messages.ts";
import { durationOf as nomadDurationOf } from "../../proto/nomad-time.ts";
import { durationMs, durationOf, timeMs, timestampOf } from "../../proto/time.ts";

test("whole milliseconds of any time survive a round trip, also before 1970", (t) => {
  const times = fc.integer({ min: -62_135_596_800_000, max: 253_402_300_799_999 });
  fc.assert(
    fc.property(times, (ms) => {
      const time = timestampOf(ms);
      return timeMs(time) === ms && time.nanos >= 0 && time.nanos <= 999_999_999;
    }),
  );
  t.deepEqual(timestampOf(-1), Timestamp.create({ seconds: -1, nanos: 999_000_000 }));
  t.deepEqual(timestampOf(1_500.25), Timestamp.create({ seconds: 1, nanos: 500_250_000 }));
});

test("a fraction of a nanosecond never rounds up to a whole second of nanoseconds", (t) => {
  t.deepEqual(timestampOf(1_999.999_999_9), Timestamp.create({ seconds: 1, nanos: 999_999_999 }));
});

test("an absent duration has its reader's default milliseconds, an absent time none", (t) => {
  t.deepEqual([durationMs(null, 7), durationMs(durationOf(2_500), 7), timeMs(null)], [7, 2_500, 0]);
  t.deepEqual(durationOf(0.5), Duration.create({ seconds: 0, nanos: 500_000 }));
  t.is(durationMs(nomadDurationOf(61_001), 0), 61_001);
});
