import test from "ava";
import { progressMachine } from "../../machines/manager/progress.machine.ts";
import { ChartRun } from "../support/chart-run.ts";

const start = () => new ChartRun(progressMachine, { intervalMs: 1_000, staleMs: 3_000 });

test("a manager is healthy from the first successful probe on, and not before", (t) => {
  const run = start();
  t.false(run.snapshot.hasTag("healthy"));
  run.send({ type: "probe.failed", at: 5, reason: "no leader" });
  t.false(run.snapshot.hasTag("healthy"));
  run.send({ type: "probe.answered", at: 10 });
  t.true(run.snapshot.hasTag("healthy"));
  t.is(run.snapshot.context.answeredAt, 10);
});

test("a healthy manager probes each interval, and is stuck once probes have failed for the stale time (P1)", (t) => {
  const run = start();
  run.send({ type: "probe.answered", at: 0 });
  for (let second = 1; second <= 2; second += 1) {
    run.advance(1_100);
    run.send({ type: "probe.failed", at: run.now, reason: "the log does not answer" });
    t.true(run.snapshot.hasTag("healthy"));
  }
  t.is(run.all().filter(({ type }) => type === "probe").length, 3);
  run.advance(1_300);
  t.false(run.snapshot.hasTag("healthy"));
  run.send({ type: "probe.answered", at: run.now });
  run.send({ type: "probe.answered", at: run.now });
  t.deepEqual(
    run.all().filter(({ type }) => type !== "probe"),
    [
      { type: "reportProgress" },
      { type: "reportStuck", params: { reason: "the log does not answer" } },
      { type: "reportProgress" },
    ],
    "changes only",
  );
});
