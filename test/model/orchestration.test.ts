// From a service to its tasks: orchestrators, rollouts, restarts, and what enforces and cleans up.
import test from "ava";
import type { RolloutPhase } from "../../machines/orchestration/rollout/status.ts";
import { rolloutMachine, type RolloutEvent } from "../../machines/orchestration/rollout.machine.ts";
import { isAsked, walkChart } from "../support/chart-model.ts";

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
