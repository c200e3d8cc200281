/**
 * A manager's own membership of the cluster: heartbeats for the others, and its record in the log.
 *
 * M1: the process sends heartbeats as long as it runs, whatever the log does: a heartbeat means "alive", not "healthy".
 * M2: the manager's record says that it is alive, and its addresses; if it does not (a leader declared it dead, or nothing
 *     was written yet), it is written again, and workers then learn of the manager.
 */
import { chart, effect } from "../chart.ts";

export const membershipTimes = {
  /**
   * Between two heartbeats, in milliseconds: four must be lost before a manager counts as dead, and 1,000 heartbeats cost
   * nothing.
   */
  beatPeriodMs: 1_000,
  /**
   * From the last heartbeat to "dead", in milliseconds. A dead manager's nodes become UNKNOWN, which places nothing new on
   * them and moves nothing, so an error is cheap.
   */
  silenceMs: 4_000,
  /** Between two attempts to write the record, in milliseconds. */
  retryMs: 1_000,
} as const;

type MembershipEvent =
  /** Whether the record in the log is correct. */
  { readonly type: "record.right" } | { readonly type: "record.wrong" };

export const membershipMachine = chart({
  types: { events: {} as MembershipEvent },
  effects: {
    publishBeat: effect(),
    /** Proposes the record; the store shows the result. */
    announce: effect(),
  },
  delays: { beatPeriod: membershipTimes.beatPeriodMs, retry: membershipTimes.retryMs },
  shows: {},
}).createMachine({
  id: "membership",
  type: "parallel",
  states: {
    beat: {
      initial: "waiting",
      states: {
        waiting: {
          description: "The last beat is published. M1",
          meta: { waitingFor: "the time of the next beat", wokenBy: { beatPeriod: "the end of the period" } },
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
          meta: {
            waitingFor: "the log, to list this manager with its addresses",
            wokenBy: { "record.right": "that record in the log", retry: "another attempt to write it" },
          },
          entry: "announce",
          ignore: ["record.wrong"],
          on: { "record.right": "listed" },
          after: { retry: { target: "announcing", reenter: true } },
        },
        listed: {
          description: "The log lists this manager as live, with its addresses. M2",
          meta: {
            waitingFor: "nothing: the log lists this manager",
            wokenBy: { "record.wrong": "a record that differs" },
          },
          ignore: ["record.right"],
          on: { "record.wrong": "announcing" },
        },
      },
    },
  },
});
