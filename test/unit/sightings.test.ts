/** Durations are measured by the monotonic clock from a report's arrival at a manager (H6, H7). */
import test from "ava";
import { Sightings, type Intake } from "../../machines/manager/sightings.ts";
import { Meta, Rollout, Task, TaskState, TaskStatus } from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";

const hourMs = 3_600_000;
/** This machine's clocks, which a test sets. */
function machine(wall: number) {
  const clocks = { wall, monotonic: 50_000 };
  const sightings = new Sightings(() => clocks);
  const intake = (isLive: boolean, writer = "m2"): Intake => ({ ...clocks, isLive, writer });
  const pass = (ms: number): void => {
    clocks.wall += ms;
    clocks.monotonic += ms;
  };
  const ageOf = (atMs: number): number => clocks.wall - atMs;
  return { clocks, sightings, intake, pass, ageOf };
}

function task(madeMs: number, reachedMs = madeMs, appliedBy = "m2"): Task {
  return Task.create({
    id: "t1",
    meta: Meta.create({ createdAt: timestampOf(madeMs) }),
    status: TaskStatus.create({ state: TaskState.RUNNING, appliedAt: timestampOf(reachedMs), appliedBy }),
  });
}

test("H6: an event reported as it happens has its age by the monotonic clock, however clocks are set", (t) => {
  for (const apartMs of [6 * hourMs, -6 * hourMs]) {
    const { ageOf, clocks, intake, pass, sightings } = machine(100 * hourMs);
    const seen = task(clocks.wall + apartMs);
    sightings.noteTask(seen, intake(true));
    pass(4_000);
    t.is(ageOf(sightings.madeMs(seen)), 4_000);
    clocks.wall += 12 * hourMs;
    t.is(ageOf(sightings.madeMs(seen)), 4_000);
    clocks.wall -= 30 * hourMs;
    pass(1_000);
    t.is(ageOf(sightings.madeMs(seen)), 5_000);
    t.is(ageOf(sightings.reachedMs(seen)), 5_000);
  }
});

test("H6: an unchanged time is a repetition, and a new time is news", (t) => {
  const { ageOf, clocks, intake, pass, sightings } = machine(100 * hourMs);
  const first = task(clocks.wall);
  sightings.noteTask(first, intake(true));
  pass(4_000);
  const again = Task.patch(first, { desiredState: TaskState.SHUTDOWN });
  sightings.noteTask(again, intake(true));
  t.is(ageOf(sightings.reachedMs(again)), 4_000);
  const next = task(clocks.wall - 4_000, clocks.wall);
  sightings.noteTask(next, intake(true));
  t.is(ageOf(sightings.reachedMs(next)), 0);
  t.is(ageOf(sightings.madeMs(next)), 4_000);
});

test("H7: an earlier event's age is by this clock, and one ahead of it begins now", (t) => {
  const { ageOf, clocks, intake, pass, sightings } = machine(100 * hourMs);
  const [earlier, ahead] = [Rollout.create({ id: "r1", countedSince: timestampOf(clocks.wall - 7_000) }), task(0)];
  const later = Task.patch(ahead, { meta: Meta.create({ createdAt: timestampOf(clocks.wall + hourMs) }) });
  sightings.noteRollout(earlier, intake(false));
  sightings.noteTask(later, intake(false));
  clocks.wall += 12 * hourMs;
  pass(1_000);
  t.is(ageOf(sightings.countedMs(earlier)), 8_000);
  t.is(ageOf(sightings.madeMs(later)), 1_000);
});

test("H7: a record shows its writer's clock offset, for earlier events", (t) => {
  for (const apartMs of [6 * hourMs, -6 * hourMs]) {
    const { ageOf, clocks, intake, pass, sightings } = machine(100 * hourMs);
    const stamped = (agoMs: number) => clocks.wall + apartMs - agoMs;
    const [made, counted] = [
      task(stamped(9_000)),
      Rollout.create({ id: "r1", countedSince: timestampOf(stamped(8_000)) }),
    ];
    const other = Rollout.create({ id: "r2", countedSince: timestampOf(clocks.wall - 5_000) });
    sightings.noteTask(made, intake(false));
    sightings.noteRollout(counted, intake(false, ""));
    sightings.noteRollout(other, intake(false, "m3"));
    const ahead = Rollout.create({ id: "r4", countedSince: timestampOf(stamped(-hourMs)) });
    sightings.noteRollout(ahead, intake(false));
    pass(1_000);
    sightings.noteRecord(clocks.wall + apartMs, intake(true));
    t.is(ageOf(sightings.madeMs(made)), 10_000);
    t.is(ageOf(sightings.reachedMs(made)), 10_000, "by the same manager's clock");
    t.is(ageOf(sightings.countedMs(counted)), 9_000, "of a snapshot");
    t.is(ageOf(sightings.countedMs(other)), 6_000, "another manager's clock is another");
    t.is(ageOf(sightings.countedMs(ahead)), 1_000, "ahead of its writer's clock as well");
    // A late arrival, after a gap.
    const gap = Rollout.create({ id: "r3", countedSince: timestampOf(clocks.wall + apartMs - 3_000) });
    sightings.noteRollout(gap, intake(false));
    t.is(ageOf(sightings.countedMs(gap)), 3_000);
  }
});

test("H7: the manager that received a report need not be the one that writes the log", (t) => {
  const { ageOf, clocks, intake, pass, sightings } = machine(100 * hourMs);
  const before = task(clocks.wall, clocks.wall - 6 * hourMs - 2_000, "m3");
  sightings.noteTask(before, intake(false));
  t.is(ageOf(sightings.reachedMs(before)), 6 * hourMs + 2_000);
  pass(1_000);
  const seen = Task.patch(task(clocks.wall, clocks.wall - 6 * hourMs, "m3"), { id: "t2" });
  sightings.noteTask(seen, intake(true));
  t.is(ageOf(sightings.reachedMs(before)), 3_000);
  t.is(ageOf(sightings.reachedMs(seen)), 0);
});

test("an event that a manager's replica never had, or no longer has, keeps its stated time", (t) => {
  const { clocks, intake, sightings } = machine(100 * hourMs);
  const draft = task(clocks.wall - 2_000);
  t.is(sightings.madeMs(draft), clocks.wall - 2_000);
  const known = task(clocks.wall - hourMs);
  sightings.noteTask(known, intake(true));
  t.is(sightings.madeMs(known), clocks.wall);
  sightings.forget("t1", ["madeMs", "reachedMs"]);
  t.is(sightings.madeMs(known), clocks.wall - hourMs);
});
