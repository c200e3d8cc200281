import test from "ava";
import { createActor } from "xstate";
import { progressMachine } from "../../machines/manager/progress.machine.ts";
import { SimClock } from "../../runtime/sim/clock.ts";

function start(): {
  actor: ReturnType<typeof createActor<typeof progressMachine>>;
  clock: SimClock;
  reports: string[];
  probes: () => number;
} {
  const clock = new SimClock();
  const reports: string[] = [];
  let probes = 0;
  const actor = createActor(
    progressMachine.provide({
      actions: {
        probe: () => (probes += 1),
        reportStuck: (_, { reason }) => reports.push(reason),
        reportUnexpected: () => reports.push("unexpected"),
      },
    }),
    {
      input: { intervalMs: 1_000, staleMs: 3_000 },
      clock: {
        setTimeout: (callback: () => void, ms: number) => clock.setTimeout(callback, ms),
        clearTimeout: (timer: never) => clock.clearTimeout(timer),
      } as never,
    },
  );
  actor.start();
  return { actor, clock, reports, probes: () => probes };
}

test("a manager is healthy from the first successful probe on, and not before", (t) => {
  const { actor } = start();
  t.false(actor.getSnapshot().hasTag("healthy"));
  actor.send({ type: "probe.failed", at: 5, reason: "no leader" });
  t.false(actor.getSnapshot().hasTag("healthy"));
  actor.send({ type: "probe.answered", at: 10 });
  t.true(actor.getSnapshot().hasTag("healthy"));
  t.is(actor.getSnapshot().context.answeredAt, 10);
});

test("a healthy manager probes each interval, and is stuck once probes have failed for the stale time (P1)", async (t) => {
  const { actor, clock, reports, probes } = start();
  actor.send({ type: "probe.answered", at: 0 });
  const from = clock.now();
  for (let second = 1; second <= 2; second += 1) {
    await clock.run({ untilMs: from + second * 1_100 });
    actor.send({ type: "probe.failed", at: clock.now(), reason: "the log does not answer" });
    t.true(actor.getSnapshot().hasTag("healthy"));
  }
  t.is(probes(), 3);
  await clock.run({ untilMs: from + 3_500 });
  t.false(actor.getSnapshot().hasTag("healthy"));
  t.deepEqual(reports, ["the log does not answer"]);
});
