/**
 * The orchestrator of one global service; one actor for each. The chart decides when it acts, by the
 * reconcile loop (`machines/reconcile.ts`, with O1 and O2), and `machines/orchestration/global-nodes.ts` what it does.
 *
 *   settled ──▶ gathering ──▶ deciding ──▶ writing ──▶ judged ──▶ settled | waiting ──▶ gathering …
 *   removed, after the service is removed
 *
 * O3: there is no state outside the store, so a new leader's orchestrator continues where the last one stopped.
 */
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

type GlobalEvent = { readonly type: "service.removed" };

export type GlobalVerdict = Pick<Required<Verdict>, "nextMs">;

interface GlobalContext extends ReconcileContext<GlobalVerdict> {
  readonly serviceId: string;
}

/** Woken by changes of the service, of a node, or of one of its tasks. */
export const globalMachine = reconciling<GlobalContext, GlobalEvent, { readonly serviceId: string }>()
  .extend({ shows: { context: ["serviceId"] } })
  .createMachine({
    id: "global",
    context: ({ input }) => ({ serviceId: input.serviceId, verdict: { nextMs: -1 }, isTouched: false }),
    initial: "gathering",
    on: {
      "service.removed": ".removed",
    },
    states: {
      settled: resting({
        description:
          "Each eligible node has its task and no other node has one, as far as the orchestrator can act on it. O3",
        meta: {
          waitingFor: "nothing: its nodes have their tasks",
          wokenBy: { "work.arrived": "a change of the service, of one of its tasks, or of a node" },
        },
      }),
      waiting: resting({
        description: "Settled until a known time.",
        meta: {
          waitingFor: "the end of a restart delay or of an update delay",
          wokenBy: {
            "work.arrived": "a change of the service, of one of its tasks, or of a node",
            nextRound: "the end of the delay",
          },
        },
        after: { nextRound: "deciding" },
      }),
      gathering: gathering({
        description: "Nodes, tasks or the service changed; gathering more from the same commits.",
      }),
      deciding: decidingToWrite({ description: "Comparing the tasks on the nodes with the spec. O1" }),
      writing: writing({ description: "Writing the decision to the log. O1, O2" }),
      judged: judged([{ guard: "hasNext", target: "waiting" }, { target: "settled" }]),
      removed: {
        description: "The service is removed; another orchestrator stops its tasks.",
        type: "final",
      },
    },
  });
