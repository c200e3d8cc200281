// A node falls silent when nothing was heard for a whole grace.
import test from "ava";
import { Silence } from "../../actors/dispatcher/silence.ts";
import { SimClock } from "../../runtime/sim/clock.ts";

function watch(graceMs: number) {
  const clock = new SimClock();
  let fell = 0;
  const silence = new Silence(clock, { at: clock.monotonic(), graceMs }, () => (fell += 1));
  silence.await();
  return { clock, silence, fell: () => fell };
}

test("each sign of life gives a whole grace again, and silence is told once, at its end", (t) => {
  const { clock, silence, fell } = watch(15_000);
  for (let beat = 0; beat < 10; beat += 1) {
    clock.advance(14_000);
    silence.note(clock.monotonic(), 15_000);
  }
  clock.advance(14_999);
  t.is(fell(), 0);
  clock.advance(1);
  t.is(fell(), 1);
  clock.advance(60_000);
  t.is(fell(), 1);
});

test("a grace that becomes longer or shorter counts at once", (t) => {
  const { clock, silence, fell } = watch(3_000);
  clock.advance(1_000);
  silence.note(clock.monotonic(), 30_000);
  clock.advance(29_000);
  t.is(fell(), 0);
  silence.note(clock.monotonic(), 2_000);
  clock.advance(1_999);
  t.is(fell(), 0);
  clock.advance(1);
  t.is(fell(), 1);
});

test("nothing is told after the stop", (t) => {
  const { clock, silence, fell } = watch(3_000);
  silence.stop();
  clock.advance(60_000);
  t.is(fell(), 0);
});
