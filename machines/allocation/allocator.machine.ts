/**
 * The allocator: gives networks their subnets and VXLAN ids, services their published ports and virtual IPs, nodes a load
 * balancer address in each network, and tasks their addresses, after which tasks go to the scheduler. The other files of
 * `machines/allocation/` decide what each gets.
 *
 *   idle | blocked ──▶ gathering ──▶ deciding ──▶ judged ──▶ idle | blocked | gathering      (machines/reconcile.ts)
 *
 * A3: a task that cannot proceed says why in its status, and is tried again when something changes that could help.
 */
import { deciding, gathering, judged, reconciling, rest, resting, type ReconcileContext } from "../reconcile.ts";

export interface AllocatorVerdict {
  /** `blocked`: some objects cannot be served now. */
  readonly phase: "blocked" | "idle";
  readonly isPartial: boolean;
}

/** Woken by new objects, and by resources that were freed or added, once the objects that wait for them are queued. */
export const allocatorMachine = reconciling<ReconcileContext<AllocatorVerdict>>().createMachine({
  id: "allocator",
  context: { verdict: { phase: "idle", isPartial: false }, isTouched: false },
  initial: "idle",
  states: {
    idle: resting({
      description: "Every object has what it asks for.",
      meta: {
        waitingFor: "a new object that asks for addresses or ports",
        wokenBy: { "work.arrived": "a new network, service, node or task" },
      },
    }),
    blocked: resting({
      description: "Some objects cannot get what they ask for; the tasks concerned say why. A3",
      meta: {
        waitingFor: "{addresses or ports that the cluster lacks}",
        wokenBy: {
          "work.arrived":
            "a change of the service, or of a network or port that it requests, or an address or port that becomes free",
        },
      },
    }),
    gathering: gathering({ description: "Objects are queued; gathering more from the same commits." }),
    deciding: deciding({
      description:
        "Allocating for networks, services and nodes, then releasing tasks to the scheduler. A1, A2, M1 to M4, N1",
    }),
    judged: judged([rest("blocked"), { target: "idle" }]),
  },
});
