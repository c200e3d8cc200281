/**
 * A recorded run is taken again by the same charts, which decide the same; by a changed chart, which decides otherwise at the
 * event where it first matters.
 */
import test from "ava";
import type { AnyStateMachine } from "xstate";
import { createProcessFeed } from "../../actors/inspection/process-feed.ts";
import { allCharts } from "../../cli/charts.ts";
import { verify, type Verification } from "../../cli/replay/verify.ts";
import { ActorSelection, TimelineStepsRequest } from "../../proto/gen/messages.ts";
import { stepsOf } from "../../runtime/recording/timeline.ts";
import { TimelineIndex } from "../../runtime/recording/timeline-index.ts";
import { ScriptedWorld, steadyTasks } from "./scripted.ts";
import { simService } from "../../simulation/workloads/services.ts";
import { followHosts } from "../../simulation/transitions.ts";

const quiet = { debug() {}, info() {}, warn() {}, error() {} };

/** A cluster that starts, runs a service whose tasks fail, loses an agent and gets it back. */
async function recorded(): Promise<TimelineIndex> {
  const world = new ScriptedWorld({
    seed: 17,
    managers: 2,
    agents: 2,
    tasks: { ...steadyTasks, failure: 0.5, lifeMsMax: 2_000 },
  });
  const { clock, trace } = world.scene.simulation;
  const index = new TimelineIndex({ bytesMax: 2 ** 28, holdMs: 0, isRecording: true });
  followHosts(trace, (host, who) => {
    const feed = createProcessFeed({ host, clock, telemetry: { log: quiet }, process: who, hostname: who });
    feed.listen(ActorSelection.create(), { ready: () => true, onFeed: (message) => index.append(message) });
  });
  await world.found();
  const id = await world.create(simService({ name: "web", replicas: 4 }));
  await world.pass(5_000);
  await world.update(id, simService({ name: "web", replicas: 2 }));
  await world.pass(20_000);
  return index;
}

const report = ({ charts, first }: Verification): string =>
  [
    JSON.stringify(first),
    ...charts.map(
      ({ chart, steps, unknown, verified }) => `${chart}: ${verified} of ${steps}, ${JSON.stringify([...unknown])}`,
    ),
  ].join("\n");

test("today's charts decide as recorded, changed ones otherwise, at the event where it first matters", async (t) => {
  t.timeout(240_000);
  const index = await recorded();
  const machines = new Map((await allCharts()).map(({ machine }) => [machine.id, machine]));
  const today = verify(index, machines);
  t.is(today.differences, 0, report(today));
  t.true(today.charts.length >= 20, report(today));
  const steps = today.charts.reduce((sum, chart) => sum + chart.steps, 0);
  const verified = today.charts.reduce((sum, chart) => sum + chart.verified, 0);
  t.true(verified > 0.9 * steps, report(today));

  // The first transition of any chart that a guard has allowed, as if the guard refused it.
  const all = stepsOf(index, TimelineStepsRequest.create({ limit: 5_000 })).steps;
  const found = all.find(({ step }) => step !== null && step.guards.length > 0 && step.event !== "xstate.init");
  const step = found?.step;
  if (step == null) throw new Error("no step has a guard");
  const machine = machines.get(step.machine) as AnyStateMachine;
  const changed = machine.provide({ guards: { [step.guards[0] as string]: () => false } });
  const result = verify(index, new Map(machines).set(step.machine, changed));
  t.true(result.differences > 0);
  t.like(result.first, { process: found?.process, part: "transitions", recorded: step.transitions.join(" ") });
  t.deepEqual(
    [result.first?.step.actor, result.first?.step.number, result.first?.step.event],
    [step.actor, step.number, step.event],
  );
  t.deepEqual(
    result.charts.filter(({ chart }) => chart !== step.machine),
    today.charts.filter(({ chart }) => chart !== step.machine),
    "the other charts decide as before",
  );

  const without = new Map(machines);
  without.delete("ledger");
  t.is(verify(index, without).first?.now, "this Muster does not have the chart");
});
