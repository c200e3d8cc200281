/**
 * The orchestrator of one replicated service; one actor for each. The chart decides when it acts, by the
 * reconcile loop (`machines/reconcile.ts`, with O1 and O2), and `machines/orchestration/slots.ts` what it does.
 *
 *   settled ──▶ gathering ──▶ deciding ──▶ writing ──▶ judged ──▶ settled | waiting ──▶ gathering …
 *   removing ──▶ removed, after the service is removed
 *
 * O3: there is no state outside the store, so a new leader's orchestrator continues where the last one stopped.
 */
import { effect } from "../chart.ts";
import {
  decidingToWrite,
  gathering,
  judged,
  reconciling,
  resting,
  writing,
  type ReconcileContext,
  type Verdict,
} from "../reconcile.ts";

type ReplicatedEvent = { readonly type: "service.removed" } | { readonly type: "tasks.gone" };

export type ReplicatedVerdict = Pick<Required<Verdict>, "nextMs">;

interface ReplicatedContext extends ReconcileContext<ReplicatedVerdict> {
  readonly serviceId: string;
}

/** Woken by changes of the service, of one of its slots, or of a node of one. */
export const replicatedMachine = reconciling<ReplicatedContext, ReplicatedEvent, { readonly serviceId: string }>()
  .extend({
    shows: { context: ["serviceId"] },
    effects: {
      /** Stops every task of the service for good; answered like `decide`, or by `tasks.gone` if none is left. */
      removeTasks: effect(),
    },
  })
  .createMachine({
    id: "replicated",
    context: ({ input }) => ({ serviceId: input.serviceId, verdict: { nextMs: -1 }, isTouched: false }),
    initial: "gathering",
    on: {
      "service.removed": ".removing",
    },
    states: {
      settled: resting({
        description: "Each slot matches the service, as far as the orchestrator can act on it. O3",
        meta: {
          waitingFor: "nothing: its slots have their tasks",
          wokenBy: { "work.arrived": "a change of the service, of one of its slots, or of a node of one" },
        },
      }),
      waiting: resting({
        description: "Settled until a known time.",
        meta: {
          waitingFor: "the end of a restart delay or of an update delay",
          wokenBy: {
            "work.arrived": "a change of the service, of one of its slots, or of a node of one",
            nextRound: "the end of the delay",
          },
        },
        after: { nextRound: "deciding" },
      }),
      gathering: gathering({ description: "Something changed; gathering more from the same commits." }),
      deciding: decidingToWrite({ description: "Comparing the slots with the spec. O1" }),
      writing: writing({ description: "Writing the decision to the log. O1, O2" }),
      judged: judged([{ guard: "hasNext", target: "waiting" }, { target: "settled" }]),
      removing: {
        description: "The service is removed: stopping its tasks, which the reaper then deletes.",
        meta: {
          waitingFor: "the end of its tasks",
          wokenBy: {
            "work.arrived": "a change of one of its tasks",
            "decision.written": "the ledger's answer",
            "tasks.gone": "the end of the last one",
          },
        },
        entry: "removeTasks",
        ignore: ["service.removed", "round.due", "round.done", "decision.made"],
        on: {
          // The decision may have created a task while the service was removed, or could not be written.
          "decision.written": { target: "removing", reenter: true },
          "work.arrived": { target: "removing", reenter: true },
          "tasks.gone": "removed",
        },
      },
      removed: { description: "No task of the service is left.", type: "final" },
    },
  });
