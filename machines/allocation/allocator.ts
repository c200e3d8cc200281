/**
 * The allocator: gives networks their subnets and VXLAN ids, services their published ports and virtual IPs, nodes the
 * address of their load balancer in each network, and tasks their addresses, whereupon these go on to the scheduler.
 * What it gives, and to whom, is decided in `machines/allocation/`.
 *
 *   idle ──▶ gathering ──▶ allocating ──▶ idle | blocked | gathering
 *
 * A3: a task that cannot go on says why in its status, and is looked at again when something changes that could help.
 */
import { setup } from "xstate";
import { effect } from "../effect.ts";

export type AllocatorEvent =
  | { readonly type: "work.arrived" }
  /** Something was freed or added, and those who wait for it are queued. */
  | { readonly type: "room.made" }
  | { readonly type: "round.due" }
  /** `blocked`: how many objects cannot be served now. `isPartial`: the round ended at its bound. */
  | { readonly type: "round.done"; readonly blocked: number; readonly isPartial: boolean };

export const allocatorMachine = setup({
  types: { events: {} as AllocatorEvent },
  actions: {
    /** Answered by `round.due` once the commits under way have been seen. */
    gather: effect("gather"),
    /** Serves what is queued; answered by `round.done`. */
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
      description: "Every object has what it asks for; waiting for new tasks.",
      on: { "work.arrived": "gathering", "room.made": "gathering" },
    },
    blocked: {
      description: "Waiting for resources that the cluster lacks; the tasks concerned say which. A3",
      on: { "work.arrived": "gathering", "room.made": "gathering" },
    },
    gathering: {
      description: "Objects are queued; gathering more from the same commits.",
      entry: "gather",
      on: { "work.arrived": {}, "room.made": {}, "round.due": "allocating" },
    },
    allocating: {
      description:
        "Allocating for networks, services and nodes, then releasing tasks to the scheduler. A1, A2, M1 to M4, N1",
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
