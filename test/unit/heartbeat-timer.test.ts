// The heartbeat timer fires when there was no sign of life for a whole grace period.
import test from "ava";
import { HeartbeatTimer } from "../../actors/dispatcher/heartbeat-timer.ts";
import { SimClock } from "../../runtime/sim/clock.ts";

function watch(graceMs: number) {
  const clock = new SimClock();
  let missed = 0;
  const timer = new HeartbeatTimer(clock, { at: clock.monotonic(), graceMs }, () => (missed += 1));
  timer.start();
  return { clock, timer, missed: () => missed };
}

test("each sign of life restarts the grace period, and missed heartbeats are reported once, at its end", (t) => {
  const { clock, timer, missed } = watch(15_000);
  for (let beat = 0; beat < 10; beat += 1) {
    clock.advance(14_000);
    timer.heard(clock.monotonic(), 15_000);
  }
  clock.advance(14_999);
  t.is(missed(), 0);
  clock.advance(1);
  t.is(missed(), 1);
  clock.advance(60_000);
  t.is(missed(), 1);
});

test("a longer or shorter grace period takes effect at once", (t) => {
  const { clock, timer, missed } = watch(3_000);
  clock.advance(1_000);
  timer.heard(clock.monotonic(), 30_000);
  clock.advance(29_000);
  t.is(missed(), 0);
  timer.heard(clock.monotonic(), 2_000);
  clock.advance(1_999);
  t.is(missed(), 0);
  clock.advance(1);
  t.is(missed(), 1);
});

test("a stopped timer reports nothing", (t) => {
  const { clock, timer, missed } = watch(3_000);
  timer.stop();
  clock.advance(60_000);
  t.is(missed(), 0);
});
