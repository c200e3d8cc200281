import test from "ava";
import { AnswerPace } from "../../actors/dispatcher/answer-pace.ts";
import { SimClock } from "../../runtime/sim/clock.ts";

test("a turn's first answers are given at once, the others in order and no more than 32 in each later turn", async (t) => {
  const clock = new SimClock();
  const pace = new AnswerPace(clock);
  const answers = Array.from({ length: 100 }, (_, index) => pace.give(index));
  t.deepEqual(
    answers.filter((answer) => !(answer instanceof Promise)),
    Array.from({ length: 32 }, (_, index) => index),
  );
  const given: number[] = [];
  for (const answer of answers) if (answer instanceof Promise) void answer.then((index) => given.push(index));
  const counts: number[] = [];
  while (clock.step()) {
    await Promise.resolve();
    counts.push(given.length);
  }
  t.deepEqual(counts, [32, 64, 68, 68]);
  t.deepEqual(
    given,
    Array.from({ length: 68 }, (_, index) => 32 + index),
  );
});

test("who asks while others wait comes after them; who asks once nobody does is answered at once", async (t) => {
  const clock = new SimClock();
  const pace = new AnswerPace(clock);
  for (let index = 0; index < 40; index += 1) void pace.give(index);
  const given: string[] = [];
  const before = pace.give("before");
  clock.step();
  const after = pace.give("after");
  t.is(after, "after", "the turn has room for it: the eight and one that waited were given");
  void Promise.resolve(before).then((answer) => given.push(answer));
  await Promise.resolve();
  await Promise.resolve();
  t.deepEqual(given, ["before"]);
  while (clock.step());
  t.is(pace.give("idle"), "idle");
});
