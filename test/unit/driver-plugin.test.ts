// The charts of a driver plugin and of a task on it alone: events in, state and effects out.
import test from "ava";
import { initialTransition, transition } from "xstate";
import {
  driverPluginMachine,
  driverPluginTimes,
  type DriverPluginEvent,
} from "../../machines/driver/plugin.machine.ts";
import { driverTaskMachine, type DriverTaskEvent, type DriverTaskInput } from "../../machines/driver/task.machine.ts";

interface Effect {
  readonly type: string;
  readonly params?: unknown;
}

function plugin(isKnown: boolean, ...events: readonly DriverPluginEvent[]) {
  let [state, effects] = initialTransition(driverPluginMachine, { name: "p", isKnown });
  for (const event of events) [state, effects] = transition(driverPluginMachine, state, event);
  return { state, effects: effects as unknown as readonly Effect[] };
}

function task(before: DriverTaskInput["before"], ...events: readonly DriverTaskEvent[]) {
  let [state, effects] = initialTransition(driverTaskMachine, { taskId: "t", before });
  for (const event of events) [state, effects] = transition(driverTaskMachine, state, event);
  return { state, effects: effects as unknown as readonly Effect[] };
}

const names = ({ effects }: { readonly effects: readonly Effect[] }): readonly string[] =>
  effects.map(({ type }) => type).filter((type) => !type.startsWith("xstate.") && type !== "announce");

const wanted: DriverPluginEvent = { type: "plugin.wanted" };
const spawned: DriverPluginEvent = { type: "process.spawned", pid: 7 };
const connected: DriverPluginEvent = { type: "plugin.connected", pid: 7 };
const configured: DriverPluginEvent = { type: "configure.done" };
const exited: DriverPluginEvent = { type: "process.exited", how: "signal SIGKILL" };
const healthy: DriverPluginEvent = { type: "fingerprint.received", health: "healthy", description: "ready" };
const serving = [wanted, spawned, connected, configured, healthy] as const;

test("a plugin starts, shakes hands, is configured and reports healthy", (t) => {
  t.deepEqual(names(plugin(false, wanted)), ["launch"]);
  t.deepEqual(names(plugin(false, wanted, spawned)), []);
  t.deepEqual(names(plugin(false, wanted, spawned, connected)), ["configure"]);
  t.deepEqual(names(plugin(false, ...serving.slice(0, 4))), ["watchFingerprint", "watchEvents"]);
  const { state } = plugin(false, ...serving);
  t.true(state.hasTag("healthy") && state.hasTag("serving"));
});

test("D3: a plugin left by an earlier agent is recovered first, and counts as configured", (t) => {
  t.deepEqual(names(plugin(true, wanted)), ["reattach"]);
  const { effects } = plugin(true, wanted, connected);
  t.deepEqual(effects.find(({ type }) => type === "configure")?.params, { isKnown: true });
  const fresh = plugin(true, wanted, { type: "launch.failed", reason: "gone" }, spawned, connected);
  t.deepEqual(fresh.effects.find(({ type }) => type === "configure")?.params, { isKnown: false });
});

test("D2: repeated health reports change nothing, and changed ones do", (t) => {
  t.deepEqual(plugin(false, ...serving, healthy).effects, []);
  const unhealthy = plugin(false, ...serving, {
    type: "fingerprint.received",
    health: "unhealthy",
    description: "no disk",
  });
  t.true(unhealthy.state.hasTag("serving"));
  t.false(unhealthy.state.hasTag("healthy"));
});

test("D1: a plugin that fails while it runs is ended before another is started", (t) => {
  const failed = plugin(false, wanted, spawned, connected, { type: "configure.failed", reason: "refused" });
  t.deepEqual(names(failed), ["endProcess"]);
  t.true(failed.state.matches({ restarting: "ending" }));
  const [ended] = transition(driverPluginMachine, failed.state, { type: "process.ended" });
  t.true(ended.matches({ restarting: "waiting" }));
});

test("D4: the delay grows with each failure up to its bound, and resets after a process that holds", (t) => {
  const failures = Array.from({ length: 8 }, (_, at) => at);
  let [state] = initialTransition(driverPluginMachine, { name: "p", isKnown: false });
  [state] = transition(driverPluginMachine, state, wanted);
  const waits = failures.map(() => {
    [state] = transition(driverPluginMachine, state, { type: "launch.failed", reason: "no" });
    const { backoffMs } = state.context;
    [state] = transition(driverPluginMachine, state, {
      type: "xstate.after.backoff.driverPlugin.restarting.waiting",
    } as never);
    return backoffMs;
  });
  t.deepEqual(waits.slice(0, 3), [5_000, 10_000, 20_000]);
  t.is(waits.at(-1), driverPluginTimes.backoffMsMax);
  for (const event of [spawned, connected, configured]) [state] = transition(driverPluginMachine, state, event);
  [state] = transition(driverPluginMachine, state, {
    type: "xstate.after.held.driverPlugin.running.age.young",
  } as never);
  t.is(state.context.backoffMs, 0);
});

test("a plugin that died is restarted, and one that hangs is asked twice and ended", (t) => {
  t.true(plugin(false, ...serving, exited).state.matches({ restarting: "waiting" }));
  let { state } = plugin(false, ...serving);
  const step = (event: DriverPluginEvent | { readonly type: string }): void => {
    [state] = transition(driverPluginMachine, state, event as DriverPluginEvent);
  };
  step({ type: "xstate.after.pulse.driverPlugin.running.pulse.resting" });
  step({ type: "health.missed" });
  t.true(state.hasTag("healthy"));
  step({ type: "xstate.after.pulseRetry.driverPlugin.running.pulse.missed" });
  step({ type: "health.missed" });
  t.true(state.matches({ restarting: "ending" }));
});

test("T1: a start with an unknown outcome is cleaned up, and never repeated", (t) => {
  t.deepEqual(names(task("new")), ["awaitPlugin"]);
  t.deepEqual(names(task("new", { type: "plugin.ready" })), ["startTask"]);
  const events: DriverTaskEvent[] = [{ type: "plugin.ready" }, { type: "call.lost", reason: "gone" }];
  t.deepEqual(names(task("new", ...events)), ["awaitPlugin"]);
  t.deepEqual(names(task("new", ...events, { type: "plugin.ready" })), ["destroyTask"]);
  const failed = task("new", ...events, { type: "plugin.ready" }, { type: "task.destroyed" });
  t.true(failed.state.matches("failed"));
  t.like(failed.effects[0]?.params, { kind: "failed", isRecoverable: true });
  t.true(task("doubtful", { type: "plugin.ready" }).state.matches("clearing"));
});

test("T5: a stop waits for a hanging start no longer than the task's grace period", (t) => {
  const stop: DriverTaskEvent = { type: "stop.wanted", signal: "SIGTERM", timeoutMs: 1_000 };
  const late = { type: "xstate.after.stopTimeout.driverTask.starting.unwanted" } as never;
  t.true(task("new", { type: "plugin.ready" }, stop).state.matches({ starting: "unwanted" }));
  t.true(task("new", { type: "plugin.ready" }, stop, { type: "task.started" }).state.matches({ live: "stopping" }));
  const cleared = task("new", { type: "plugin.ready" }, stop, late, { type: "plugin.ready" });
  t.deepEqual(names(cleared), ["destroyTask"]);
  const failed = task(
    "new",
    { type: "plugin.ready" },
    stop,
    late,
    { type: "plugin.ready" },
    { type: "task.destroyed" },
  );
  t.true(failed.state.matches("failed"));
  t.like(failed.effects[0]?.params, { kind: "failed", isRecoverable: false });
});

test("T3: a stop that is rejected, or takes too long, becomes a kill", (t) => {
  const running: DriverTaskEvent[] = [{ type: "plugin.ready" }, { type: "task.started" }];
  const stop: DriverTaskEvent = { type: "stop.wanted", signal: "SIGTERM", timeoutMs: 3_000 };
  const stopping = task("new", ...running, stop);
  t.deepEqual(stopping.effects.find(({ type }) => type === "stopTask")?.params, {
    signal: "SIGTERM",
    timeoutMs: 3_000,
  });
  t.true(task("new", ...running, stop, { type: "stop.refused", reason: "no" }).state.matches({ live: "killing" }));
  const late = { type: "xstate.after.stopTimeout.driverTask.live.stopping" } as never;
  t.deepEqual(names(task("new", ...running, stop, late)), ["destroyTask"]);
});

test("T4: a stop without a driver to call is carried out when the task is recovered", (t) => {
  const stop: DriverTaskEvent = { type: "stop.wanted", signal: "", timeoutMs: 0 };
  const found = task("started", stop, { type: "plugin.ready" }, { type: "task.recovered" });
  t.true(found.state.matches({ live: "stopping" }));
  t.deepEqual(names(found), ["waitTask", "stopTask"]);
});
