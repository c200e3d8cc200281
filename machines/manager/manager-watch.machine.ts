/**
 * The leader's watch over one other manager, by its heartbeats.
 *
 *   alive ⇄ blind        alive ──▶ silent ──▶ alive …
 *
 * V1: a manager counts as dead after `silenceMs` without a heartbeat, if the leader's own link was up throughout: a leader
 *     that hears nobody may be cut off itself.
 */
import { chart, effect } from "../chart.ts";
import { membershipTimes } from "./membership.machine.ts";

type ManagerWatchEvent =
  | { readonly type: "beat" }
  | { readonly type: "link.up" }
  | { readonly type: "link.down" }
  /** It recorded in the log that it is alive. */
  | { readonly type: "record.alive" };

export const managerWatchMachine = chart({
  types: {
    events: {} as ManagerWatchEvent,
    input: {} as { readonly managerId: string; readonly isUp: boolean },
    context: {} as { readonly managerId: string; readonly isUp: boolean },
  },
  effects: {
    /** Proposes `alive = false`. */
    declareDead: effect(),
  },
  guards: { isUp: ({ context }) => context.isUp },
  delays: { silence: membershipTimes.silenceMs, retry: membershipTimes.retryMs },
  shows: { context: ["managerId", "isUp"] },
}).createMachine({
  id: "managerWatch",
  context: ({ input }) => input,
  initial: "starting",
  ignore: ["link.up", "record.alive"],
  on: {
    beat: ".alive",
    "link.down": ".blind",
  },
  states: {
    starting: {
      description: "Choosing the first state by this manager's own link; never rests here.",
      always: [{ guard: "isUp", target: "alive" }, { target: "blind" }],
    },
    alive: {
      description: "The manager's heartbeat arrived within the timeout, or the watch began less than a timeout ago. V1",
      meta: { waitingFor: "the manager's next beat", wokenBy: { beat: "the beat", silence: "the time limit for it" } },
      on: { beat: { target: "alive", reenter: true } },
      after: { silence: "silent" },
    },
    blind: {
      description: "This manager's own link is down: nothing can be said about other managers. V1",
      meta: { waitingFor: "this manager's own link", wokenBy: { "link.up": "the link's return" } },
      ignore: ["link.down"],
      on: { "link.up": "alive" },
    },
    silent: {
      description: "The manager is dead as far as anyone can tell; making sure that the log says so.",
      meta: {
        waitingFor: "the manager's return",
        wokenBy: {
          "record.alive": "its record in the log",
          beat: "a beat",
          retry: "another attempt to write that it is dead",
        },
      },
      entry: "declareDead",
      on: { "record.alive": "alive" },
      after: { retry: { target: "silent", reenter: true } },
    },
  },
});
