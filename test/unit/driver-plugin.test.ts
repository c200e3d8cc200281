// The charts of a driver plugin and of a task on it alone: events in, state and effects out.
import test from "ava";
import {
  driverPluginMachine,
  driverPluginTimes,
  type DriverPluginEvent,
} from "../../machines/driver/plugin.machine.ts";
import { driverTaskMachine, type DriverTaskEvent, type DriverTaskInput } from "../../machines/driver/task.machine.ts";
import { ChartRun } from "../support/chart-run.ts";

type Run = ChartRun<typeof driverPluginMachine> | ChartRun<typeof driverTaskMachine>;

function plugin(isKnown: boolean, ...happenings: readonly (DriverPluginEvent | string)[]) {
  return new ChartRun(driverPluginMachine, { name: "p", isKnown }).send(...happenings);
}

function task(before: DriverTaskInput["before"], ...happenings: readonly (DriverTaskEvent | string)[]) {
  return new ChartRun(driverTaskMachine, { taskId: "t", before }).send(...happenings);
}

const names = (run: Run): readonly string[] => run.names.filter((name) => name !== "announce");

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
  const { snapshot } = plugin(false, ...serving);
  t.true(snapshot.hasTag("healthy") && snapshot.hasTag("serving"));
});

test("D3: a plugin left by an earlier agent is recovered first, and counts as configured", (t) => {
  t.deepEqual(names(plugin(true, wanted)), ["reattach"]);
  t.deepEqual(plugin(true, wanted, connected).paramsOf("configure"), { isKnown: true });
  const fresh = plugin(true, wanted, { type: "launch.failed", reason: "gone" }, spawned, connected);
  t.deepEqual(fresh.paramsOf("configure"), { isKnown: false });
});

test("D2: repeated health reports change nothing, and changed ones do", (t) => {
  t.deepEqual(plugin(false, ...serving, healthy).effects, []);
  const unhealthy = plugin(false, ...serving, {
    type: "fingerprint.received",
    health: "unhealthy",
    description: "no disk",
  });
  t.true(unhealthy.snapshot.hasTag("serving"));
  t.false(unhealthy.snapshot.hasTag("healthy"));
});

test("D1: a plugin that fails while it runs is ended before another is started", (t) => {
  const failed = plugin(false, wanted, spawned, connected, { type: "configure.failed", reason: "refused" });
  t.deepEqual(names(failed), ["endProcess"]);
  t.true(failed.snapshot.matches({ restarting: "ending" }));
  t.true(failed.send({ type: "process.ended" }).snapshot.matches({ restarting: "waiting" }));
});

test("D4: the delay grows with each failure up to its bound, and resets after a process that holds", (t) => {
  const failures = Array.from({ length: 8 }, (_, at) => at);
  const run = plugin(false, wanted);
  const waits = failures.map(() => {
    const [waitMs] = run.send({ type: "launch.failed", reason: "no" }).delays;
    run.send("backoff");
    return waitMs;
  });
  t.deepEqual(waits.slice(0, 3), [5_000, 10_000, 20_000]);
  t.is(waits.at(-1), driverPluginTimes.backoff.msMax);
  t.is(run.send(spawned, connected, configured, "held").snapshot.context.failures, 0);
});

test("a plugin that died is restarted, and one that hangs is asked twice and ended", (t) => {
  t.true(plugin(false, ...serving, exited).snapshot.matches({ restarting: "waiting" }));
  const run = plugin(false, ...serving, "pulse", { type: "health.missed" });
  t.true(run.snapshot.hasTag("healthy"));
  run.send("pulseRetry", { type: "health.missed" });
  t.true(run.snapshot.matches({ restarting: "ending" }));
});

test("T1: a start with an unknown outcome is cleaned up, and never repeated", (t) => {
  t.deepEqual(names(task("new")), ["awaitPlugin"]);
  t.deepEqual(names(task("new", { type: "plugin.ready" })), ["startTask"]);
  const events: DriverTaskEvent[] = [{ type: "plugin.ready" }, { type: "call.lost", reason: "gone" }];
  t.deepEqual(names(task("new", ...events)), ["awaitPlugin"]);
  t.deepEqual(names(task("new", ...events, { type: "plugin.ready" })), ["destroyTask"]);
  const failed = task("new", ...events, { type: "plugin.ready" }, { type: "task.destroyed" });
  t.true(failed.snapshot.matches("failed"));
  t.like(failed.effects[0]?.params, { kind: "failed", isRecoverable: true });
  t.true(task("doubtful", { type: "plugin.ready" }).snapshot.matches("clearing"));
});

test("T5: a stop waits for a hanging start no longer than the task's grace period", (t) => {
  const stop: DriverTaskEvent = { type: "stop.wanted", signal: "SIGTERM", timeoutMs: 1_000 };
  const late = "stopTimeout";
  t.true(task("new", { type: "plugin.ready" }, stop).snapshot.matches({ starting: "unwanted" }));
  t.true(task("new", { type: "plugin.ready" }, stop, { type: "task.started" }).snapshot.matches({ live: "stopping" }));
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
  t.true(failed.snapshot.matches("failed"));
  t.like(failed.effects[0]?.params, { kind: "failed", isRecoverable: false });
});

test("T3: a stop that is rejected, or takes too long, becomes a kill", (t) => {
  const running: DriverTaskEvent[] = [{ type: "plugin.ready" }, { type: "task.started" }];
  const stop: DriverTaskEvent = { type: "stop.wanted", signal: "SIGTERM", timeoutMs: 3_000 };
  const stopping = task("new", ...running, stop);
  t.deepEqual(stopping.paramsOf("stopTask"), {
    signal: "SIGTERM",
    timeoutMs: 3_000,
  });
  t.true(task("new", ...running, stop, { type: "stop.refused", reason: "no" }).snapshot.matches({ live: "killing" }));
  t.deepEqual(names(task("new", ...running, stop, "stopTimeout")), ["destroyTask"]);
});

test("T4: a stop without a driver to call is carried out when the task is recovered", (t) => {
  const stop: DriverTaskEvent = { type: "stop.wanted", signal: "", timeoutMs: 0 };
  const found = task("started", stop, { type: "plugin.ready" }, { type: "task.recovered" });
  t.true(found.snapshot.matches({ live: "stopping" }));
  t.deepEqual(names(found), ["waitTask", "stopTask"]);
});
