// The actors of a node's agent.
import test from "ava";
import {
  agentTaskMachine,
  type AgentTaskEvent,
  type AgentTaskInput,
  type TaskReport,
} from "../../machines/agent/task.machine.ts";
import { TaskState } from "../../proto/gen/messages.ts";
import { isAsked, paramsOf, walkChart } from "../support/chart-model.ts";

test("a task on its node reports one final state, does not start twice over two lives of its agent, and leaves nothing", async (t) => {
  const { COMPLETE, FAILED, PREPARING, READY, REJECTED, RUNNING, SHUTDOWN, STARTING } = TaskState;
  const exit = (code: number) => ({ code, signal: "", reason: "", lastOutput: "" });
  const events: readonly AgentTaskEvent[] = [
    { type: "run.absent" },
    { type: "run.found", pid: 7 },
    { type: "run.refused", reason: "no" },
    { type: "run.prepared" },
    { type: "run.started", pid: 7 },
    { type: "run.exited", pid: 7, exit: exit(0) },
    { type: "run.exited", pid: 7, exit: exit(1) },
    { type: "run.stopped", code: 143 },
    { type: "run.forgotten" },
    { type: "health.passed" },
    { type: "health.missed", reason: "slow" },
    { type: "health.lost", reason: "sick" },
    { type: "desired.raised", desired: RUNNING },
    { type: "desired.raised", desired: SHUTDOWN },
    { type: "removal.wanted" },
  ];
  const inputs: AgentTaskInput[] = [];
  for (const before of [PREPARING, READY, STARTING, RUNNING, COMPLETE] as const)
    for (const desired of [READY, RUNNING, SHUTDOWN] as const)
      for (const isChecked of [false, true])
        for (const flaw of isChecked ? ["", "sick"] : [""])
          inputs.push({ taskId: "t", before, desired, isChecked, flaw });
  await walkChart(t, {
    machine: agentTaskMachine,
    inputs,
    events,
    memory: { isStarted: false, isRun: false, isOver: false, isProven: false, isUnhealthy: false, isStopped: false },
    check: (memory, { asked, context: after, event, from, states }, claim) => {
      const context = from?.snapshot.context as AgentTaskInput | undefined;
      const wasRemoving = from?.states.includes("removing") ?? false;
      const isStarting = isAsked(asked, "start");
      const { desired } = after as AgentTaskInput;
      claim(
        "K2",
        !isStarting || (desired >= RUNNING && desired < SHUTDOWN),
        "it is started although it should rest or stop",
      );
      claim("K3", !isStarting || !memory.isStarted, "it is started again");
      claim("K3", !isStarting || (context?.before ?? 0) < STARTING, "a task that an earlier agent started is started");
      const isProven = memory.isProven || event?.type === "health.passed" || (context?.before ?? 0) >= RUNNING;
      const isUnhealthy = memory.isUnhealthy || states.includes("failing") || (context?.flaw ?? "") !== "";
      // By this life of the agent or an earlier one.
      const isRun =
        memory.isRun ||
        isStarting ||
        (context?.before ?? 0) >= STARTING ||
        (from?.states[0] === "recovering" && (event?.type === "run.found" || event?.type === "run.exited"));
      const reports = paramsOf<TaskReport>(asked, "report");
      for (const { state } of reports) {
        claim("K1", !memory.isOver, "it reports after its final state");
        claim("K1", !wasRemoving, "it reports during its removal");
        claim("K4", state !== REJECTED || !isRun, "a started task is rejected");
        claim("K4", state !== FAILED || isRun || isUnhealthy, "a task that never ran fails");
        claim("K6", state !== RUNNING || context?.isChecked !== true || isProven, "it runs unproven");
        claim("K6", state !== COMPLETE || !memory.isUnhealthy, "an unhealthy task completes");
      }
      claim(
        "K5",
        !isAsked(asked, "forget") || memory.isStopped || event?.type === "run.stopped",
        "forgotten while it runs",
      );
      return {
        isStarted: memory.isStarted || isStarting,
        isRun,
        isOver: memory.isOver || reports.some(({ state }) => state >= COMPLETE),
        isProven,
        isUnhealthy,
        isStopped: states.includes("removing.halting") && event?.type === "run.stopped",
      };
    },
    ends: true,
  });
});
