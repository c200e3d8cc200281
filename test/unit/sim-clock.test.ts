import test from "ava";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";

test("timers run in order of deadline, ties by insertion, each at its own time", (t) => {
  const clock = new SimClock();
  const begin = clock.now();
  const seen: string[] = [];
  const note = (name: string) => () => seen.push(`${name}@${clock.now() - begin}`);
  clock.setTimeout(note("c"), 30);
  clock.setTimeout(() => clock.setTimeout(note("d"), 10), 10);
  clock.setTimeout(note("a"), 10);
  clock.setTimeout(note("b"), 10);
  clock.clearTimeout(clock.setTimeout(note("never"), 5));
  clock.advance(100);
  t.deepEqual(seen, ["a@10", "b@10", "d@20", "c@30"]);
  t.is(clock.now() - begin, 100);
});

test("callbacks of soon run before a due timer", (t) => {
  const clock = new SimClock();
  const seen: string[] = [];
  clock.setTimeout(() => seen.push("timer"), 0);
  clock.soon(() => {
    seen.push("soon");
    clock.soon(() => seen.push("sooner than timers"));
  });
  while (clock.step());
  t.deepEqual(seen, ["soon", "sooner than timers", "timer"]);
});

test("a run settles chains of promises before the next timer", async (t) => {
  const clock = new SimClock();
  const seen: string[] = [];
  clock.setTimeout(() => {
    void (async () => {
      for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
      seen.push("promise");
    })();
  }, 1);
  clock.setTimeout(() => seen.push("timer"), 2);
  t.is(await clock.run(), "idle");
  t.deepEqual(seen, ["promise", "timer"]);
});

test("a run ends at its time, its condition or its number of steps", async (t) => {
  const clock = new SimClock();
  let count = 0;
  const again = () => {
    count += 1;
    clock.setTimeout(again, 10);
  };
  again();
  t.is(await clock.run({ untilMs: clock.now() + 25 }), "time");
  t.is(count, 3);
  t.is(await clock.run({ until: () => count === 5 }), "until");
  t.is(await clock.run({ maxSteps: 2 }), "steps");
  t.is(count, 7);
});

test("a process's clock is skewed and drifts, and its timers wait by its own time", (t) => {
  const clock = new SimClock();
  const fast = clock.forProcess(5_000, 100_000);
  const began = fast.now();
  t.is(began - clock.now(), 5_000);
  let firedAt = 0;
  fast.setTimeout(() => (firedAt = fast.now()), 1_100);
  clock.advance(1_001);
  t.is(firedAt - began, 1_100);
});

test("a paused process runs overdue timers when it continues, and a dead one never", (t) => {
  const clock = new SimClock();
  const paused = clock.forProcess();
  const dead = clock.forProcess();
  const seen: string[] = [];
  paused.setTimeout(() => seen.push("first"), 10);
  paused.setTimeout(() => seen.push("second"), 20);
  dead.setTimeout(() => seen.push("dead"), 10);
  dead.soon(() => seen.push("dead"));
  dead.kill();
  paused.pause();
  clock.advance(100);
  t.deepEqual(seen, []);
  paused.resume();
  clock.advance(0);
  t.deepEqual(seen, ["first", "second"]);
});

test("a fork does not depend on earlier draws, and a second fork of one name differs", (t) => {
  const one = new SimRandom("8471");
  const two = new SimRandom("8471");
  two.next();
  const fork = one.fork("network");
  t.deepEqual(fork.bytes(8), two.fork("network").bytes(8));
  t.notDeepEqual(one.fork("network").bytes(8), two.fork("other").bytes(8));
  t.notDeepEqual(new SimRandom("8472").bytes(8), new SimRandom("8471").bytes(8));
});

test("draws are spread evenly over their range", (t) => {
  const random = new SimRandom("spread");
  const counts = Array.from({ length: 10 }, () => 0);
  for (let draw = 0; draw < 10_000; draw += 1) counts[random.below(10)]! += 1;
  for (const count of counts) t.true(count > 850 && count < 1_150, `${count} of 10000 in one tenth`);
});

test("a slow process runs one callback at a time, in the order in which they came due (T6)", async (t) => {
  const clock = new SimClock();
  const slow = clock.forProcess();
  const quick = clock.forProcess();
  const seen: string[] = [];
  const note = (name: string) => () => seen.push(`${name}@${Math.round(clock.elapsed)}`);
  slow.slow(10);
  slow.setTimeout(() => {
    note("a")();
    slow.soon(note("part of a"));
  }, 1);
  slow.setTimeout(note("b"), 2);
  const cancelled = slow.setTimeout(note("never"), 3);
  slow.setTimeout(note("c"), 4);
  slow.setTimeout(note("d"), 13);
  slow.setTimeout(note("later"), 100);
  quick.setTimeout(note("of another"), 5);
  clock.setTimeout(() => slow.clearTimeout(cancelled), 6);
  await clock.run();
  t.deepEqual(seen, ["a@1", "part of a@1", "of another@5", "b@11", "c@21", "d@31", "later@100"]);
});

test("a slow process that is paused, or quick again, loses none of its queued callbacks (T6)", async (t) => {
  const clock = new SimClock();
  const slow = clock.forProcess();
  const seen: string[] = [];
  slow.slow(10);
  for (const name of ["a", "b", "c", "d", "e"])
    slow.setTimeout(() => seen.push(`${name}@${Math.round(clock.elapsed)}`), 1);
  clock.setTimeout(() => slow.pause(), 5);
  clock.setTimeout(() => slow.resume(), 50);
  clock.setTimeout(() => slow.slow(0), 65);
  await clock.run();
  t.deepEqual(seen, ["a@1", "b@50", "c@60", "d@70", "e@70"]);
});

test("DH1: timers run by deadline and order, however many are cancelled in between", (t) => {
  const clock = new SimClock();
  const random = new SimRandom("cancelled timers");
  const expected: { at: number; order: number }[] = [];
  const ran: { at: number; order: number }[] = [];
  const begin = clock.monotonic();
  for (let order = 0; order < 3_000; order += 1) {
    const at = random.between(1, 500);
    const timer = clock.setTimeout(() => ran.push({ at: clock.monotonic() - begin, order }), at);
    // Most are cancelled, so that the clock drops them several times while others wait.
    if (random.chance(0.8)) clock.clearTimeout(timer);
    else expected.push({ at, order });
  }
  clock.advance(1_000);
  t.deepEqual(
    ran.map(({ order }) => order),
    expected.toSorted((a, b) => a.at - b.at || a.order - b.order).map(({ order }) => order),
  );
});

test("T6: a slow process goes on after the callback whose turn it is was cancelled among many", (t) => {
  const clock = new SimClock();
  const process = clock.forProcess();
  const seen: string[] = [];
  process.slow(10);
  process.setTimeout(() => seen.push("first"), 1);
  const second = process.setTimeout(() => seen.push("second"), 2);
  process.setTimeout(() => seen.push("third"), 3);
  clock.advance(5);
  process.clearTimeout(second);
  for (let count = 0; count < 1_000; count += 1) clock.clearTimeout(clock.setTimeout(() => {}, 1_000));
  clock.advance(100);
  t.deepEqual(seen, ["first", "third"]);
});
