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

/** Phases with the state that they lead to, and the direction. */
const moving: readonly (readonly [RolloutPhase, string])[] = [
  ["updating", "update"],
  ["stepping", "update"],
  ["rolling back", "rollback"],
  ["rollback stepping", "rollback"],
];

function failed(fields: { wantsRollback?: boolean; isLate?: boolean } = {}): RolloutEvent {
  return { type: "look.failed", why: " due to a task", wantsRollback: false, isLate: false, ...fields };
}

test(leads, [phase("none", true)], "update:beginning", "begin");
test(leads, [phase("rolling back", true)], "rollback:beginning", "begin");
for (const [name, way] of moving) {
  test(leads, [phase(name)], `${way}:moving:gathering`, "gather");
  test(leads, [phase(name), round], `${way}:moving:looking`, "look");
  test(leads, [phase(name), round, { type: "look.busy", nextMs: 5 }], `${way}:moving:replacing`, "note");
  test(leads, [phase(name), round, { type: "look.delayed", nextMs: 5 }], `${way}:moving:delaying`, "note");
  test(leads, [phase(name), round, { type: "look.watching", nextMs: 5 }], `${way}:moving:watching`, "note");
  test(
    leads,
    [phase(name), round, { type: "look.busy", nextMs: 5 }, { type: "slots.touched" }],
    `${way}:moving:gathering`,
    "gather",
  );
  test(leads, [phase(name), round, { type: "look.finished" }], `${way}:completing`, "complete");
  test(leads, [phase(name), round, { type: "look.stepped" }], `${way}:pausing`, "pause");
  test(leads, [phase(name), round, { type: "look.choose" }], `${way}:choosing`, "chooseBatch");
  test(leads, [phase(name), round, failed()], `${way}:pausing`, "pause");
}

const rejected: RolloutEvent = { type: "rollback.rejected", reason: "port 80 is taken" };
const toRollback = [phase("updating"), round, failed({ wantsRollback: true })];
test(leads, toRollback, "update:startingRollback", "startRollback");
test(leads, [...toRollback, rejected], "update:pausing", "pause");

test("a pause and a rollback are written with the reason", (t) => {
  const why = (...events: readonly RolloutEvent[]): unknown => after(...events).effects.at(-1)?.params;
  t.deepEqual(why(phase("updating"), round, failed()), { why: " due to a task" });
  t.deepEqual(why(...toRollback), { why: " due to a task" });
  t.deepEqual(why(...toRollback, rejected), { why: " due to a task; it cannot be rolled back: port 80 is taken" });
  const late = failed({ wantsRollback: true, isLate: true });
  t.deepEqual(why(phase("updating"), round, late), {
    why: " due to a task; not rolled back, because no update was requested",
  });
  t.deepEqual(why(phase("stepping"), round, { type: "look.stepped" }), { why: " after one step" });
});

test("a rollback that fails is paused, whatever its failure action", (t) => {
  const { state, names } = after(phase("rolling back"), round, failed({ wantsRollback: true }));
  t.is(state, "rollback:pausing");
  t.deepEqual(names, ["pause"]);
});

test("after a failed write the phase is read again", (t) => {
  const delayed = after(phase("updating"), round, { type: "look.finished" }, { type: "write.failed" });
  t.is(delayed.state, "update:completing");
  t.deepEqual(after(phase("updating"), { type: "write.failed" }, { type: "read.due" }).names, ["readPhase"]);
});

test("the store's state is followed from every phase", (t) => {
  const phases = [...moving, ["paused", "update:paused"], ["rollback paused", "rollback:paused"]] as const;
  for (const [from] of phases) {
    for (const [to, state] of phases) t.true(after(phase(from), phase(to)).state.startsWith(state), `${from} ▶ ${to}`);
    t.is(after(phase(from), { type: "rollout.over" }).state, "over");
  }
});

test("a rejected rollback has no effect on a later phase", (t) => {
  for (const [name, way] of moving) t.is(after(phase(name), rejected).state, `${way}:moving:gathering`);
});

test("while it is paused nothing is checked", (t) => {
  for (const name of ["paused", "rollback paused"] as const) {
    t.deepEqual(after(phase(name), { type: "slots.touched" }).names, []);
    t.deepEqual(after(phase(name), round).names, []);
  }
});
