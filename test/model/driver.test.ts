// Task drivers on a node: their plugins, the tasks that run on them, and health checks.
import test from "ava";
import { healthCheckMachine, type HealthNews } from "../../machines/driver/health-check.machine.ts";
import {
  driverPluginMachine,
  type DriverPluginEvent,
  type DriverPluginNews,
} from "../../machines/driver/plugin.machine.ts";
import { driverTaskMachine, type DriverTaskEvent, type DriverTaskNews } from "../../machines/driver/task.machine.ts";
import { isAsked, isDue, isIn, paramsOf, walkChart } from "../support/chart-model.ts";

test("a task on a driver starts at most once and its exit is reported once, whatever driver and agent do", async (t) => {
  const events: readonly DriverTaskEvent[] = [
    { type: "task.started" },
    { type: "start.refused", reason: "no", isRecoverable: true },
    { type: "task.recovered" },
    { type: "recover.refused", reason: "unknown" },
    { type: "task.exited", exit: { code: 0, signal: 0, oomKilled: false, err: "" } },
    { type: "stop.wanted", signal: "SIGTERM", timeoutMs: 1_000 },
    { type: "stop.done" },
    { type: "stop.refused", reason: "no" },
    { type: "destroy.wanted" },
    { type: "task.destroyed" },
    { type: "destroy.refused", reason: "no" },
    { type: "call.lost", reason: "died" },
    { type: "plugin.ready" },
  ];
  await walkChart(t, {
    machine: driverTaskMachine,
    inputs: (["new", "started", "doubtful"] as const).map((before) => ({ taskId: "t", before })),
    events,
    memory: { isStarted: false, isOver: false, isForgotten: false, refusals: 0 },
    check: (memory, { asked, event, from, states }, claim) => {
      const told = paramsOf<DriverTaskNews>(asked, "announce");
      const news = told.map(({ kind }) => kind);
      const ends = news.filter((kind) => kind === "exited" || kind === "failed").length;
      const isStarting = isAsked(asked, "startTask");
      claim("T1", !isStarting || !memory.isStarted, "it is started again");
      claim(
        "T1",
        !isStarting || from?.snapshot.context.before === "new",
        "a task that an earlier agent started is started",
      );
      claim("T2", ends + (memory.isOver ? 1 : 0) <= 1, "its exit is reported twice");
      claim("T2", !memory.isOver || !news.includes("running"), "it runs after its exit");
      claim("T2", !memory.isForgotten || asked.length === 0, "something happens after the end");
      const isDue = event?.type.startsWith("xstate.after.") === true;
      const isLeft = isDue && (isIn(from, "live.stopping") || isIn(from, "live.stopped") || isIn(from, "live.killing"));
      claim("T3", !isLeft || isAsked(asked, "destroyTask"), "a stop does not end, and no kill follows");
      const wantsStop = from?.snapshot.context.stop != null;
      claim("T4", !wantsStop || !isIn({ states }, "live.running"), "a stop is forgotten while no plugin serves");
      const isHanging = isDue && isIn(from, "starting.unwanted");
      claim("T5", !isHanging || isIn({ states }, "doubtful"), "a hanging start delays a stop beyond its time limit");
      const isOver = memory.isOver || ends > 0;
      const isForgotten = news.includes("destroyed");
      const isRefused = from?.states[0] === "destroying" && event?.type === "destroy.refused";
      const refusals = memory.refusals + (isRefused ? 1 : 0);
      const isGivenUp = told.some((each) => each.kind === "destroyed" && each.reason !== "");
      claim("T2", !isGivenUp || refusals === 5, "the task is abandoned although its driver was only away");
      claim("T2", !isForgotten || isOver, "it is forgotten without an exit");
      return { isStarted: memory.isStarted || isStarting, isOver, isForgotten, refusals };
    },
    ends: true,
  });
});

test("a task is unhealthy after as many counted failures in a row as its spec allows, and for good", async (t) => {
  const retries = 2;
  const times = { intervalMs: 1_000, timeoutMs: 500, retries, startIntervalMs: 200 };
  const failuresIn = (context: unknown): number => (context as { readonly failures: number }).failures;
  await walkChart(t, {
    machine: healthCheckMachine,
    inputs: [true, false].flatMap((wasHealthy) =>
      [0, 10_000].map((startPeriodMs) => ({ taskId: "t1", times: { ...times, startPeriodMs }, wasHealthy })),
    ),
    events: [
      { type: "check.passed" } as const,
      { type: "check.failed", reason: "refused" } as const,
      { type: "check.skipped" } as const,
    ],
    matters: ({ misses, ...context }: { readonly misses: number }) => ({ ...context, misses: Math.min(misses, 4) }),
    /** `isCounted`: a failure of the running check counts. `failures`: counted ones in a row. */
    memory: { isOver: false, wasHealthy: false, isRunning: false, isCounted: false, failures: 0 },
    check: (memory, step, claim) => {
      const { asked, context, event, from } = step;
      const input = context as { readonly wasHealthy: boolean; readonly times: { readonly startPeriodMs: number } };
      const type = event?.type ?? "";
      const isOver = memory.isOver || input.times.startPeriodMs === 0 || isDue(event, "startPeriod");
      const isPassed = memory.isRunning && type === "check.passed";
      const isFailed = memory.isRunning && (type === "check.failed" || isDue(event, "timeout"));
      const wasHealthy = memory.wasHealthy || input.wasHealthy || isPassed;
      const counts = isFailed && memory.isCounted;
      const failures = isPassed ? 0 : memory.failures + (counts ? 1 : 0);

      const begins = isAsked(asked, "check");
      const isEnded = type.startsWith("check.") || isAsked(asked, "cancelCheck");
      claim("H1", !begins || !memory.isRunning, "two checks run");
      claim("H1", !begins || isDue(event, "firstPause") || isDue(event, "pause"), "a check begins without a pause");
      const isRunning = begins || (memory.isRunning && !isEnded);
      const isChecking = isIn(step, "starting.checking") || isIn(step, "healthy.checking");
      claim("H1", isRunning === isChecking, "a check runs on, or its outcome is awaited without it");
      const isUnhealthy = isIn(step, "unhealthy");
      claim("H2", isUnhealthy === failures >= retries, "a task is unhealthy too early or too late");
      claim(
        "H3",
        !isFailed || counts || failuresIn(context) === memory.failures,
        "a failure of the start period counts",
      );
      const isSkipped = type === "check.skipped";
      const isSame = failuresIn(context) === memory.failures && isIn(step, "healthy") === isIn(from, "healthy");
      claim("H4", !isSkipped || (isSame && !isUnhealthy), "a check without a result counts");
      claim("H2", failuresIn(context) === failures, "failures are not counted in a row");
      const news = paramsOf<HealthNews>(asked, "announce");
      claim(
        "H5",
        isUnhealthy === news.some(({ kind }) => kind === "unhealthy"),
        "unhealthy is not reported, or goes on",
      );
      const isCounted = begins ? wasHealthy || isOver : memory.isCounted;
      return { isOver, wasHealthy, isRunning, isCounted, failures };
    },
    ends: true,
  });
});

/** A plugin's process, as its host sees it; `sought`: of an earlier agent. */
type PluginProcess = "none" | "sought" | "launched" | "spawned" | "connected";

test("one process of a driver's plugin runs at a time, is found again, and restarts less often the more often it fails", async (t) => {
  const events: readonly DriverPluginEvent[] = [
    { type: "plugin.wanted" },
    { type: "plugin.unwanted" },
    { type: "process.spawned", pid: 7 },
    { type: "plugin.connected", pid: 7 },
    { type: "launch.failed", reason: "no" },
    { type: "configure.done" },
    { type: "configure.failed", reason: "no" },
    ...(["undetected", "unhealthy", "healthy"] as const).flatMap((health) =>
      ["a", "b"].map((description): DriverPluginEvent => ({ type: "fingerprint.received", health, description })),
    ),
    { type: "fingerprint.lost", reason: "reset" },
    { type: "health.answered" },
    { type: "health.missed" },
    { type: "process.exited", how: "code 1" },
    { type: "process.ended" },
  ];
  /** The process from which each event comes; the others come at any moment. */
  const sources: Readonly<Record<string, readonly PluginProcess[]>> = {
    "process.spawned": ["launched"],
    "plugin.connected": ["sought", "spawned"],
    "launch.failed": ["sought", "launched", "spawned"],
    "process.exited": ["connected"],
  };
  const failuresIn = (context: unknown): number => (context as { readonly failures: number }).failures;
  await walkChart(t, {
    machine: driverPluginMachine,
    inputs: [true, false].map((isKnown) => ({ name: "exec", isKnown })),
    events,
    matters: (context: { readonly isKnown: boolean; readonly reason: string; readonly failures: number }) => [
      context.isKnown,
      context.reason,
      Math.min(context.failures, 2),
    ],
    mayCome: ({ memory }, { type }) =>
      type === "process.ended" ? memory.isEnding : (sources[type]?.includes(memory.process) ?? true),
    memory: { process: "none" as PluginProcess, isEnding: false, isFound: false, health: "" },
    check: (memory, step, claim) => {
      const { asked, context, event, from } = step;
      const type = event?.type ?? "";
      let { process, isEnding, isFound } = memory;
      if (type === "process.spawned") process = "spawned";
      if (type === "plugin.connected") [isFound, process] = [process === "sought", "connected"];
      // A process that is being stopped is gone once its end is reported.
      if (type === "launch.failed" || (type === "process.exited" && !isEnding)) process = "none";
      if (type === "process.ended") [isEnding, process] = [false, "none"];
      const isFree = process === "none" && !isEnding;
      const launches = isAsked(asked, "launch");
      claim("D1", !launches || isFree, "another process is started beside one");
      const isIdle = ["absent", "restarting.waiting", "stopped"].some((state) => isIn(step, state));
      claim("D1", !isIdle || isFree, "a process is left alone");

      const isRunning = isIn(step, "running");
      const begins = isRunning && !isIn(from, "running");
      claim("D2", begins === isAsked(asked, "watchEvents"), "tasks of a running plugin are not managed");
      claim("D2", (isIn(from, "running") && !isRunning) === isAsked(asked, "endStreams"), "streams outlive the plugin");
      const isLost = type === "fingerprint.lost" || !isRunning || begins;
      const health = isLost ? "" : event?.type === "fingerprint.received" ? event.health : memory.health;
      claim("D2", isIn(step, "running.report.healthy") === (health === "healthy"), "an unhealthy plugin accepts tasks");
      const news = paramsOf<DriverPluginNews>(asked, "announce");
      claim("D2", health === "healthy" || news.every(({ state }) => state !== "healthy"), "its health is made up");

      const isKnown = (from?.snapshot.context as { readonly isKnown?: boolean } | undefined)?.isKnown ?? false;
      const isFirst = type === "plugin.wanted" && isIn(from, "absent");
      claim("D3", !isFirst || isAsked(asked, "reattach") === isKnown, "a plugin that runs is not looked for");
      claim("D3", !isFirst || launches !== isKnown, "a plugin that runs is started a second time");
      const configured = paramsOf<{ isKnown: boolean }>(asked, "configure");
      claim(
        "D3",
        configured.every((each) => each.isKnown === isFound),
        "a plugin is configured twice, or never",
      );

      const before = from === null ? 0 : failuresIn(from.snapshot.context);
      const fails = isIn(step, "restarting") && !isIn(from, "restarting");
      const expected = isDue(event, "held") ? 0 : before + (fails ? 1 : 0);
      claim("D4", failuresIn(context) === expected, "the wait does not follow the failures");
      claim("D4", !isIn(from, "restarting") || !launches || isDue(event, "backoff"), "it does not wait");

      if (isAsked(asked, "reattach")) process = "sought";
      if (launches) process = "launched";
      return {
        process,
        isEnding: isEnding || isAsked(asked, "endProcess"),
        isFound: isFound && process !== "none",
        health,
      };
    },
    unreached: {
      "stopped#process.exited#0": "an exit is reported before the end of its process, or not at all",
    },
  });
});
