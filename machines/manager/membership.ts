/**
 * A manager's membership of the cluster, seen from itself: beats for the others, and its own record in the log.
 *
 * M1: as long as the process runs it beats, whatever the log does: a beat says "I live", not "I am well".
 * M2: its record says that it lives and where; when it does not (a leader took it for dead, or nothing is written yet), the
 *     record is written again, after which workers are told of it.
 */
import { setup } from "xstate";
import { effect } from "../effect.ts";

export const membershipTimes = {
  /** Between two beats, in milliseconds: four must be lost before a manager counts as dead, and 1,000 beats cost nothing. */
  beatPeriodMs: 1_000,
  /** From the last beat to "dead", in milliseconds. A killed manager's nodes are then UNKNOWN, which places nothing new on
   *  them and moves nothing, so being wrong is cheap. */
  silenceMs: 4_000,
  /** Between two attempts to write the own record, in milliseconds. */
  retryMs: 1_000,
} as const;

export type MembershipEvent =
  /** The record in the log is, or is not, as it should be. */
  { readonly type: "record.right" } | { readonly type: "record.wrong" };

export const membershipMachine = setup({
  types: { events: {} as MembershipEvent },
  actions: {
    publishBeat: effect("publishBeat"),
    /** Proposes the own record; the store tells what became of it. */
    announce: effect("announce"),
    reportUnexpected: effect("reportUnexpected"),
  },
  delays: { beatPeriod: membershipTimes.beatPeriodMs, retry: membershipTimes.retryMs },
}).createMachine({
  id: "membership",
  type: "parallel",
  options: { maxIterations: 1_000 },
  on: { "*": { actions: "reportUnexpected" } },
  states: {
    beat: {
      initial: "waiting",
      states: {
        waiting: {
          description: "Waiting for the period to end before the next heartbeat. M1",
          entry: "publishBeat",
          after: { beatPeriod: { target: "waiting", reenter: true } },
        },
      },
    },
    record: {
      initial: "announcing",
      states: {
        announcing: {
          description: "This manager's record is missing or wrong: writing it until the log has it. M2",
          entry: "announce",
          on: { "record.right": "listed", "record.wrong": {} },
          after: { retry: { target: "announcing", reenter: true } },
        },
        listed: {
          description: "The log lists this manager as live, with its addresses. M2",
          on: { "record.wrong": "announcing", "record.right": {} },
        },
      },
    },
  },
});
