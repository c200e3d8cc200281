// From a service to its tasks: orchestrators, rollouts, restarts, and what enforces and cleans up.
import test from "ava";
import { enforcerMachine } from "../../machines/orchestration/enforcer.machine.ts";
import { globalMachine } from "../../machines/orchestration/global.machine.ts";
import { jobMachine } from "../../machines/orchestration/job.machine.ts";
import { reaperMachine } from "../../machines/orchestration/reaper.machine.ts";
import { pauseAfter, pauseMsMin, rebalanceMachine } from "../../machines/orchestration/rebalance.machine.ts";
import { replicatedMachine } from "../../machines/orchestration/replicated.machine.ts";
import { restartMachine } from "../../machines/orchestration/restart.machine.ts";
import type { RolloutPhase } from "../../machines/orchestration/rollout/status.ts";
import { rolloutMachine, type RolloutEvent } from "../../machines/orchestration/rollout.machine.ts";
import { scheduleMachine } from "../../machines/orchestration/schedule.machine.ts";
import { isAsked, isDue, isIn, walkChart } from "../support/chart-model.ts";
import { checkLoop, loopEvents, loopMemory } from "../support/loop-model.ts";

/** A new leader's actor begins with a round, so the store alone tells it what to do. */
const beginsAnew = (from: unknown, asked: Parameters<typeof isAsked>[0]): boolean =>
  from !== null || isAsked(asked, "gather");

test("a rollout is always in the phase that the store has", async (t) => {
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
  await walkChart(t, {
    machine: rolloutMachine,
    inputs: [{ serviceId: "s" }],
    events,
    memory: null,
    check: (_, { asked, event, from, states }, claim) => {
      const remainingMs = (from?.snapshot.context as { readonly remainingMs?: number } | undefined)?.remainingMs ?? -1;
      const top = states[1] ?? "";
      const isPhase = Object.values(phases).includes(top);
      const isSaid = event?.type === "phase.is" && !event.mustBegin && phases[event.phase] === top;
      claim("R1", !isPhase || from?.states[1] === top || isSaid, `${top} although the store does not have it`);
      claim("R1", writes.filter((write) => isAsked(asked, write)).length <= 1, "two phases are written at once");
      claim("R1", !isAsked(asked, "look") || isPhase, "slots get their turn outside any phase");
      const isLate = event?.type.startsWith("xstate.after.deadline") === true && remainingMs >= 0;
      claim(
        "R2",
        !isLate || states.some((state) => state.endsWith(".looking")),
        "the deadline of the rollout passes unnoticed",
      );
      claim("R3", !isAsked(asked, "startRollback") || from?.states[0] === "update", "a rollback is rolled back");
      return null;
    },
    ends: true,
  });
});

test("an orchestrator of slots misses no change, and rests only when its tasks are gone", async (t) => {
  await walkChart(t, {
    machine: replicatedMachine,
    inputs: [{ serviceId: "s" }],
    events: [
      ...loopEvents([{ nextMs: -1 }, { nextMs: 100 }], { writes: true }),
      { type: "service.removed" },
      { type: "tasks.gone" },
    ],
    memory: loopMemory,
    check: (memory, step, claim) => {
      const { asked, event, from } = step;
      claim("O3", beginsAnew(from, asked), "a new leader begins without a round");
      claim("O3", event?.type !== "tasks.gone" || !isIn(from, "removing") || isIn(step, "removed"), "it never ends");
      return checkLoop(memory, step, claim, { ends: ["removing", "removed"] });
    },
    ends: true,
  });
});

test("a global service's orchestrator misses no change", async (t) => {
  await walkChart(t, {
    machine: globalMachine,
    inputs: [{ serviceId: "s" }],
    events: [...loopEvents([{ nextMs: -1 }, { nextMs: 100 }], { writes: true }), { type: "service.removed" }],
    memory: loopMemory,
    check: (memory, step, claim) => {
      claim("O3", beginsAnew(step.from, step.asked), "a new leader begins without a round");
      return checkLoop(memory, step, claim, { ends: ["removed"] });
    },
    ends: true,
  });
});

test("a job's orchestrator misses no change, and rests in the phase of its verdict", async (t) => {
  const phases = ["working", "paused", "stopped", "succeeded", "failed", "scheduled"] as const;
  await walkChart(t, {
    machine: jobMachine,
    inputs: [{ serviceId: "s" }],
    events: [
      ...loopEvents(
        phases.map((phase) => ({ phase, nextMs: -1 })),
        { writes: true },
      ),
      { type: "job.removed" },
    ],
    memory: loopMemory,
    check: (memory, step, claim) => {
      const { asked, context, from } = step;
      claim("O3", beginsAnew(from, asked), "a new leader begins without a round");
      const { phase } = (context as { readonly verdict: { readonly phase: string } }).verdict;
      const rests = phases.find((each) => isIn(step, each));
      claim("O3", rests === undefined || rests === phase, "it rests in another phase than the store's");
      return checkLoop(memory, step, claim, { ends: ["removed"] });
    },
    ends: true,
  });
});

test("a schedule decides again after a refused write, and ends when nothing of it is left", async (t) => {
  const phases = ["waiting", "paused", "invalid"] as const;
  const verdicts = phases.flatMap((phase) => [-1, 100].map((nextMs) => ({ phase, nextMs })));
  await walkChart(t, {
    machine: scheduleMachine,
    inputs: [{ serviceId: "s" }],
    events: [
      ...loopEvents(verdicts, { writes: true }),
      { type: "schedule.removed" },
      { type: "write.failed" },
      { type: "rest.gone" },
    ],
    memory: loopMemory,
    check: (memory, step, claim) => {
      const { asked, event, from } = step;
      claim("O3", beginsAnew(from, asked), "a new leader begins without a round");
      const isRefused = event?.type === "write.failed" && isIn(from, "writing");
      claim("O3", !isRefused || isIn(step, "held"), "a refused run counts as started");
      claim("O3", !isDue(event, "retry") || isAsked(asked, "decide"), "a refused run is not decided again");
      return checkLoop(memory, step, claim, { ends: ["ending", "ended"] });
    },
    ends: true,
  });
});

test("restarts, the enforcers and the reaper miss no change", async (t) => {
  const verdicts = [true, false].flatMap((isPartial) => [-1, 100].map((nextMs) => ({ isPartial, nextMs })));
  const unit = (name: string) => `a function of the slot's tasks: test/unit/${name}.test.ts`;
  const common = { inputs: [undefined], memory: loopMemory };
  await walkChart(t, {
    ...common,
    machine: restartMachine,
    events: loopEvents(verdicts, { writes: false }),
    check: (memory, step, claim) => {
      const isTime = isDue(step.event, "nextRound");
      claim("Q2", !isTime || isAsked(step.asked, "decide"), "a deadline passes unnoticed");
      return checkLoop(memory, step, claim);
    },
    elsewhere: { Q1: unit("restart"), Q3: unit("restart"), Q4: unit("restart"), Q5: unit("refused-starts") },
  });
  await walkChart(t, {
    ...common,
    machine: enforcerMachine,
    events: loopEvents([{ isPartial: true }, { isPartial: false }], { writes: false }),
    check: (memory, step, claim) => checkLoop(memory, step, claim),
    elsewhere: Object.fromEntries(["F1", "F2", "F3", "F4", "F5"].map((label) => [label, unit("enforcer")])),
  });
  await walkChart(t, {
    ...common,
    machine: reaperMachine,
    events: loopEvents([{ isPartial: true }, { isPartial: false }], { writes: false }),
    check: (memory, step, claim) => checkLoop(memory, step, claim),
    elsewhere: Object.fromEntries(["R1", "R2", "R3", "R4", "R5"].map((label) => [label, unit("reaper")])),
  });
});

test("rebalancing pauses before each check, and writes one round of moves at a time", async (t) => {
  const phases = ["off", "paused", "settling", "watching", "watchingMoves"] as const;
  const verdicts = phases.map((phase) => ({ phase, nextMs: 100, pauseMs: pauseMsMin, isPartial: false }));
  await walkChart(t, {
    machine: rebalanceMachine,
    inputs: [{ pauseMs: pauseMsMin }],
    events: loopEvents([...verdicts, { ...verdicts[0], isPartial: true }], { writes: true }).filter(
      ({ type }) => type !== "round.due",
    ),
    memory: loopMemory,
    check: (memory, step, claim) => {
      const { asked, event, from } = step;
      const checks = isAsked(asked, "decide");
      claim("B1", !checks || (isDue(event, "pause") && isIn(from, "gathering")), "a check follows without a pause");
      claim(
        "B1",
        pauseAfter(1_000) >= 20_000 && pauseAfter(0) === pauseMsMin,
        "the pause does not grow with the check",
      );
      claim("B2", !checks || !isIn(from, "writing"), "a round of moves begins before the last has ended");
      claim("B3", from !== null || isIn(step, "off"), "a new leader's actor knows more than the store");
      return checkLoop(memory, step, claim);
    },
  });
});
