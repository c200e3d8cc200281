import test from "ava";
import { AnswerPace } from "../../actors/dispatcher/answer-pace.ts";
import { SimClock } from "../../runtime/sim/clock.ts";

test("a turn's first answers are sent at once, the others in order and no more than 32 in each later turn", async (t) => {
  const clock = new SimClock();
  const pace = new AnswerPace(clock, "answer");
  const answers = Array.from({ length: 100 }, () => pace.give());
  t.deepEqual(
    answers.map((answer) => answer instanceof Promise),
    Array.from({ length: 100 }, (_, index) => index >= 32),
  );
  const given: number[] = [];
  for (const [index, answer] of answers.entries())
    if (answer instanceof Promise)
      void answer.then((text) => {
        t.is(text, "answer");
        given.push(index);
      });
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

test("a caller queues behind those already waiting, and is answered at once when nobody waits", async (t) => {
  const clock = new SimClock();
  const pace = new AnswerPace(clock, "answer");
  for (let index = 0; index < 40; index += 1) void pace.give();
  let given = 0;
  const before = pace.give();
  t.true(before instanceof Promise);
  clock.step();
  t.is(pace.give(), "answer", "the turn has capacity for it: only the eight and one waiting were answered");
  void Promise.resolve(before).then(() => (given += 1));
  await Promise.resolve();
  await Promise.resolve();
  t.is(given, 1);
  while (clock.step());
  t.is(pace.give(), "answer");
});
