/**
 * The allocator: gives networks their subnets and VXLAN ids, services their published ports and virtual IPs, nodes a load
 * balancer address in each network, and tasks their addresses, after which tasks go to the scheduler. The other files of
 * `machines/allocation/` decide what each gets.
 *
 *   idle ──▶ gathering ──▶ allocating ──▶ idle | blocked | gathering
 *
 * A3: a task that cannot proceed says why in its status, and is tried again when something changes that could help.
 */
import { setup } from "xstate";
import { effect } from "../effect.ts";

export type AllocatorEvent =
  | { readonly type: "work.arrived" }
  /** Something was freed or added, and the objects that wait for it are queued. */
  | { readonly type: "resources.freed" }
  | { readonly type: "round.due" }
  /** `blocked`: number of objects that cannot be served now. `isPartial`: the round stopped at its limit. */
  | { readonly type: "round.done"; readonly blocked: number; readonly isPartial: boolean };

export const allocatorMachine = setup({
  types: { events: {} as AllocatorEvent },
  actions: {
    /** Answered by `round.due` after the current commits. */
    gather: effect("gather"),
    /** Serves the queue; answered by `round.done`. */
    allocate: effect("allocate"),
    reportUnexpected: effect("reportUnexpected"),
  },
  guards: {
    isPartial: (_, { isPartial }: { isPartial: boolean }) => isPartial,
    isBlocked: (_, { blocked }: { blocked: number }) => blocked > 0,
  },
}).createMachine({
  id: "allocator",
  initial: "idle",
  options: { maxIterations: 1_000 },
  on: { "*": { actions: "reportUnexpected" } },
  states: {
    idle: {
      description: "Every object has what it asks for.",
      meta: {
        waitingFor: "a new object that asks for addresses or ports",
        wokenBy: {
          "work.arrived": "a new network, service, node or task",
          "resources.freed": "freed addresses or ports",
        },
      },
      on: { "work.arrived": "gathering", "resources.freed": "gathering" },
    },
    blocked: {
      description: "Some objects cannot get what they ask for; the tasks concerned say why. A3",
      meta: {
        waitingFor: "{addresses or ports that the cluster lacks}",
        wokenBy: {
          "work.arrived": "a change of the service, or of a network or port that it requests",
          "resources.freed": "an address or port that becomes free",
        },
      },
      on: { "work.arrived": "gathering", "resources.freed": "gathering" },
    },
    gathering: {
      description: "Objects are queued; gathering more from the same commits.",
      meta: { waitingFor: "the rest of the current batch of commits", wokenBy: { "round.due": "its end" } },
      entry: "gather",
      on: { "work.arrived": {}, "resources.freed": {}, "round.due": "allocating" },
    },
    allocating: {
      description:
        "Allocating for networks, services and nodes, then releasing tasks to the scheduler. A1, A2, M1 to M4, N1",
      meta: { waitingFor: "the end of the round", wokenBy: { "round.done": "the last allocation of the round" } },
      entry: "allocate",
      on: {
        "round.done": [
          { guard: { type: "isPartial", params: ({ event }) => event }, target: "gathering" },
          { guard: { type: "isBlocked", params: ({ event }) => event }, target: "blocked" },
          { target: "idle" },
        ],
      },
    },
  },
});
