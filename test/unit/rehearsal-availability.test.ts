import test from "ava";
import { Availability } from "../../simulation/rehearsal/availability.ts";

test("availability begins when all wanted tasks first run, and ends with the run", (t) => {
  const availability = new Availability(1_000);
  availability.want(4, 1_000);
  for (const atMs of [2_000, 3_000, 4_000, 5_000]) availability.run(1, atMs);
  availability.run(-1, 12_000);
  availability.run(1, 14_000);
  // The scenario began at 10,000 and was run for 10,000 ms.
  t.deepEqual(availability.outcome(10_000, 10_000), {
    replicas: [
      { atMs: 0, wanted: 4, running: 4 },
      { atMs: 2_000, wanted: 4, running: 3 },
      { atMs: 4_000, wanted: 4, running: 4 },
    ],
    availabilityMin: 3 / 4,
    fullShare: 0.8,
    firstFullMs: 4_000,
  });
});

test("tasks that were just asked for are not missing, and those that ran before are", (t) => {
  const availability = new Availability(0);
  availability.want(2, 0);
  availability.run(2, 1_000);
  availability.want(6, 2_000);
  t.is(availability.outcome(0, 3_000).availabilityMin, 1);
  availability.run(-1, 3_000);
  t.is(availability.outcome(0, 4_000).availabilityMin, 1 / 2);
  availability.run(5, 5_000);
  availability.run(-3, 6_000);
  t.is(availability.outcome(0, 7_000).availabilityMin, 1 / 2);
  availability.run(-2, 7_000);
  t.is(availability.outcome(0, 8_000).availabilityMin, 1 / 6);
  availability.want(1, 8_000);
  t.is(availability.outcome(0, 9_000).availabilityMin, 1 / 6);
});

test("a service that never had all of its tasks was not available, and one without tasks was", (t) => {
  const never = new Availability(0);
  never.want(2, 0);
  never.run(1, 10);
  t.like(never.outcome(0, 1_000), { availabilityMin: 0, fullShare: 0, firstFullMs: null });
  t.like(new Availability(0).outcome(0, 1_000), { availabilityMin: 1, firstFullMs: null });
});
