// The phases of a rollout in the chart: which event leads where, and the resulting requests to the host.
import test from "ava";
import { rolloutMachine, type RolloutEvent } from "../../machines/orchestration/rollout.machine.ts";
import type { RolloutPhase } from "../../machines/orchestration/rollout/status.ts";
import { ChartRun } from "../support/chart-run.ts";

function phase(is: RolloutPhase, mustBegin = false): RolloutEvent {
  return { type: "phase.is", phase: is, mustBegin, remainingMs: 60_000 };
}

const after = (...events: readonly RolloutEvent[]) =>
  new ChartRun(rolloutMachine, { serviceId: "web" }).send(...events);

const round: RolloutEvent = { type: "round.due" };

const leads = test.macro({
  exec: (t, events: readonly RolloutEvent[], state: string, effect: string) => {
    const found = after(...events);
    t.is(found.state, state);
    t.true(found.names.includes(effect), found.names.join());
  },
  title: (_title, events: readonly RolloutEvent[], state: string) =>
    `${events.map((event) => (event.type === "phase.is" ? event.phase : event.type)).join(", ")} leads to ${state}`,
});

const moving: readonly (readonly [RolloutPhase, string])[] = [
  ["updating", "updating"],
  ["stepping", "stepping"],
  ["rolling back", "rollingBack"],
  ["rollback stepping", "rollbackStepping"],
];

test(leads, [phase("none", true)], "beginning", "begin");
for (const [name, state] of moving) {
  test(leads, [phase(name)], `${state}:gathering`, "gather");
  test(leads, [phase(name), round], `${state}:looking`, "look");
  test(leads, [phase(name), round, { type: "look.busy", nextMs: 5 }], `${state}:replacing`, "note");
  test(leads, [phase(name), round, { type: "look.delayed", nextMs: 5 }], `${state}:delaying`, "note");
  test(leads, [phase(name), round, { type: "look.watching", nextMs: 5 }], `${state}:watching`, "note");
  test(
    leads,
    [phase(name), round, { type: "look.busy", nextMs: 5 }, { type: "slots.touched" }],
    `${state}:gathering`,
    "gather",
  );
  test(leads, [phase(name), round, { type: "look.finished" }], "completing", "complete");
  test(leads, [phase(name), round, { type: "look.stepped" }], "pausing", "pause");
  test(leads, [phase(name), round, { type: "look.choose" }], "choosing", "chooseBatch");
  test(leads, [phase(name), round, { type: "look.failed", wantsRollback: false }], "pausing", "pause");
  test(leads, [phase(name), round, { type: "look.failed", wantsRollback: true }], "startingRollback", "startRollback");
}

const failed: RolloutEvent = { type: "look.failed", wantsRollback: true };
test(leads, [phase("updating"), round, failed, { type: "rollback.rejected" }], "pausing", "pause");

test("the store's state is followed from every phase", (t) => {
  const phases = [...moving, ["paused", "paused"], ["rollback paused", "rollbackPaused"]] as const;
  for (const [from] of phases) {
    for (const [to, state] of phases) t.true(after(phase(from), phase(to)).state.startsWith(state), `${from} ▶ ${to}`);
    t.is(after(phase(from), { type: "rollout.over" }).state, "over");
  }
});

test("a rejected rollback has no effect on a later phase", (t) => {
  for (const [name, state] of moving)
    t.is(after(phase(name), { type: "rollback.rejected" }).state, `${state}:gathering`);
});

test("while it is paused nothing is checked", (t) => {
  for (const name of ["paused", "rollback paused"] as const) {
    t.deepEqual(after(phase(name), { type: "slots.touched" }).names, []);
    t.deepEqual(after(phase(name), round).names, []);
  }
});
