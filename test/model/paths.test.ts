// Every path through a chart, with any event at any moment: each state is reached, the invariants hold on each step, and the
// end is reachable from everywhere.
import test, { type ExecutionContext } from "ava";
import type { AnyStateMachine } from "xstate";
import {
  agentTaskMachine,
  type AgentTaskEvent,
  type AgentTaskInput,
  type TaskReport,
} from "../../machines/agent/task.machine.ts";
import { driverTaskMachine, type DriverTaskEvent, type DriverTaskNews } from "../../machines/driver/task.machine.ts";
import type { RolloutPhase } from "../../machines/orchestration/rollout/status.ts";
import { rolloutMachine, type RolloutEvent } from "../../machines/orchestration/rollout.machine.ts";
import { TaskState } from "../../proto/gen/messages.ts";
import { allPlaces, allStates, stuck, type Asked, type Place } from "../support/paths.ts";

function claim(condition: boolean, text: string): void {
  if (!condition) throw new Error(text);
}

function isAsked(asked: readonly Asked[], type: string): boolean {
  return asked.some((each) => each.type === type);
}

function paramsOf<Params>(asked: readonly Asked[], type: string): readonly Params[] {
  return asked.filter((each) => each.type === type).map(({ params }) => params as Params);
}

/** `passing`: states that a chart leaves before anything else can happen. */
function looksAtAll<Memory>(
  t: ExecutionContext,
  machine: AnyStateMachine,
  places: readonly Place<Memory>[],
  passing: readonly string[],
): void {
  const reached = new Set(places.flatMap(({ states }) => states));
  const missed = allStates(machine).filter((state) => !reached.has(state));
  t.deepEqual(missed, passing, "each state is reached");
  const lost = stuck(places, ({ snapshot }) => snapshot.status === "done");
  t.deepEqual(lost[0]?.events, undefined, "its end is reachable from everywhere");
  t.log(`${places.length} places`);
}

test("a task on a driver starts at most once and its exit is reported once, whatever driver and agent do", (t) => {
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
  const places = allPlaces(driverTaskMachine, {
    inputs: (["new", "started", "doubtful"] as const).map((before) => ({ taskId: "t", before })),
    events,
    memory: { isStarted: false, isOver: false, isForgotten: false, refusals: 0 },
    remember: (memory, { asked, event, from }) => {
      const told = paramsOf<DriverTaskNews>(asked, "announce");
      const news = told.map(({ kind }) => kind);
      const ends = news.filter((kind) => kind === "exited" || kind === "failed").length;
      const isStarting = isAsked(asked, "startTask");
      claim(!isStarting || !memory.isStarted, "T1: it is started again");
      claim(
        !isStarting || from?.snapshot.context.before === "new",
        "T1: a task that an earlier agent started is started",
      );
      claim(ends + (memory.isOver ? 1 : 0) <= 1, "T2: its exit is reported twice");
      claim(!memory.isOver || !news.includes("running"), "T2: it runs after its exit");
      claim(!memory.isForgotten || asked.length === 0, "something happens after the end");
      const isOver = memory.isOver || ends > 0;
      const isForgotten = news.includes("destroyed");
      const isRefused = from?.states[0] === "destroying" && event?.type === "destroy.refused";
      const refusals = memory.refusals + (isRefused ? 1 : 0);
      const isGivenUp = told.some((each) => each.kind === "destroyed" && each.reason !== "");
      claim(!isGivenUp || refusals === 5, "the task is abandoned although its driver was only away");
      claim(!isForgotten || isOver, "T2: it is forgotten without an exit");
      return { isStarted: memory.isStarted || isStarting, isOver, isForgotten, refusals };
    },
  });
  looksAtAll(t, driverTaskMachine, places, ["deciding"]);
});

test("a task on its node reports one final state, does not start twice over two lives of its agent, and leaves nothing", (t) => {
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
  const places = allPlaces(agentTaskMachine, {
    inputs,
    events,
    memory: { isStarted: false, isRun: false, isOver: false, isProven: false, isUnhealthy: false, isStopped: false },
    remember: (memory, { asked, event, from, states }) => {
      const context = from?.snapshot.context as AgentTaskInput | undefined;
      const wasRemoving = from?.states.includes("removing") ?? false;
      const isStarting = isAsked(asked, "start");
      claim(!isStarting || !memory.isStarted, "K3: it is started again");
      claim(!isStarting || (context?.before ?? 0) < STARTING, "K3: a task that an earlier agent started is started");
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
        claim(!memory.isOver, "K1: it reports after its final state");
        claim(!wasRemoving, "K1: it reports during its removal");
        claim(state !== REJECTED || !isRun, "K4: a started task is rejected");
        claim(state !== FAILED || isRun || isUnhealthy, "K4: a task that never ran fails");
        claim(state !== RUNNING || context?.isChecked !== true || isProven, "K6: it runs unproven");
        claim(state !== COMPLETE || !memory.isUnhealthy, "K6: an unhealthy task completes");
      }
      claim(
        !isAsked(asked, "forget") || memory.isStopped || event?.type === "run.stopped",
        "K5: forgotten while it runs",
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
  });
  looksAtAll(t, agentTaskMachine, places, ["accepted", "removing.removed"]);
});

test("a rollout is always in the phase that the store has", (t) => {
  const phases: Readonly<Partial<Record<RolloutPhase, string>>> = {
    updating: "update.moving",
    stepping: "update.moving",
    paused: "update.paused",
    "rolling back": "rollback.moving",
    "rollback stepping": "rollback.moving",
    "rollback paused": "rollback.paused",
  };
  const events: readonly RolloutEvent[] = [
    ...Object.keys(phases).flatMap((phase) =>
      [-1, 5_000].map((remainingMs) => ({
        type: "phase.is" as const,
        phase: phase as RolloutPhase,
        mustBegin: false,
        remainingMs,
      })),
    ),
    { type: "phase.is", phase: "updating", mustBegin: true, remainingMs: -1 },
    { type: "phase.is", phase: "rolling back", mustBegin: true, remainingMs: -1 },
    { type: "rollout.over" },
    { type: "slots.touched" },
    { type: "round.due" },
    ...[-1, 100].flatMap((nextMs) => [
      { type: "look.busy" as const, nextMs },
      { type: "look.delayed" as const, nextMs },
      { type: "look.watching" as const, nextMs },
    ]),
    { type: "look.finished" },
    { type: "look.stepped" },
    { type: "look.choose" },
    { type: "look.failed", why: " due to a task", wantsRollback: true, isLate: false },
    { type: "look.failed", why: " due to a task", wantsRollback: false, isLate: false },
    { type: "rollback.rejected", reason: "port 80 is taken" },
    { type: "write.failed" },
    { type: "read.due" },
  ];
  const writes = ["begin", "pause", "startRollback", "complete", "chooseBatch"];
  const places = allPlaces(rolloutMachine, {
    inputs: [{ serviceId: "s" }],
    events,
    memory: null,
    remember: (_, { asked, event, from, states }) => {
      const top = states[1] ?? "";
      const isPhase = Object.values(phases).includes(top);
      const isSaid = event?.type === "phase.is" && !event.mustBegin && phases[event.phase] === top;
      claim(!isPhase || from?.states[1] === top || isSaid, `R1: ${top} although the store does not have it`);
      claim(writes.filter((write) => isAsked(asked, write)).length <= 1, "R1: two phases are written at once");
      claim(!isAsked(asked, "look") || isPhase, "slots get their turn outside any phase");
      claim(!isAsked(asked, "startRollback") || from?.states[0] === "update", "R3: a rollback is rolled back");
      return null;
    },
  });
  looksAtAll(t, rolloutMachine, places, []);
});
