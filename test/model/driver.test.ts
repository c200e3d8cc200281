// Task drivers on a node: their plugins, the tasks that run on them, and health checks.
import test from "ava";
import { driverTaskMachine, type DriverTaskEvent, type DriverTaskNews } from "../../machines/driver/task.machine.ts";
import { isAsked, isIn, paramsOf, walkChart } from "../support/chart-model.ts";

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
