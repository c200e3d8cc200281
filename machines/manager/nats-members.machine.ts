/**
 * Keeps the cluster of three managers' nats-servers whole: replaces the server of a manager that was demoted or removed by that of
 * another one, and tells the operator while copies of the log are missing. Runs on every manager that has a server of the cluster;
 * `nats-members.ts` decides, from what NATS itself has, which one takes the next step.
 *
 *   resting ──▶ reading ──▶ deciding ──▶ adding | removing | learning ──▶ settling ──▶ reading …
 *      ▲           │            │                     │
 *      └───────────┴────────────┴─────────────────────┘
 *
 * NM3: one step at a time, each after a new look at what NATS has, so that a step may be lost, or done twice.
 * NM4: missing copies are reported if two readings in a row found them: a follower lags for a moment without being away.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";
import type { NatsMembersStep } from "./nats-members.ts";

const natsMembersTimes = {
  /** Between two readings, in milliseconds. A changed manager is seen at once. */
  restMs: 10_000,
  /** After a step, in milliseconds: NATS counts a new server within about a second. */
  settleMs: 2_000,
} as const;
/** Readings with missing copies before they are reported. NM4 */
const readingsMin = 2;

export type NatsMembersEvent =
  | { readonly type: "managers.changed" }
  /** `missing`: sentence for the operator, empty if every copy is current. */
  | { readonly type: "servers.read"; readonly step: NatsMembersStep; readonly missing: string }
  /** NATS has no leader now, or this manager cannot reach it. */
  | { readonly type: "reading.failed" }
  | { readonly type: "step.taken" }
  | { readonly type: "step.failed" };

export const natsMembersMachine = chart({
  types: {
    context: {} as {
      readonly step: NatsMembersStep;
      readonly missing: string;
      readonly readingsWithMissing: number;
    },
    events: {} as NatsMembersEvent,
  },
  effects: {
    /** Answered by `servers.read` or `reading.failed`. */
    readServers: effect(),
    /** Has the manager of `step` start a server in the cluster; answered by `step.taken` or `step.failed`, as the next ones. */
    add: effect<{ step: NatsMembersStep }>(),
    /** Removes the server of `step`, whose copies move to the others. */
    remove: effect<{ step: NatsMembersStep }>(),
    /** Takes the list of servers of the manager that has changed it last. */
    learn: effect(),
    /** Empty: withdraws the report. */
    reportMissing: effect<{ sentence: string }>(),
  },
  actions: {
    rememberReading: assign(({ context }, { missing, step }: { missing: string; step: NatsMembersStep }) => ({
      step,
      missing,
      readingsWithMissing: missing === "" ? 0 : context.readingsWithMissing + 1,
    })),
  },
  guards: {
    isToAdd: ({ context }) => context.step.kind === "add",
    isToRemove: ({ context }) => context.step.kind === "remove",
    isToLearn: ({ context }) => context.step.kind === "learn",
  },
  delays: { rest: natsMembersTimes.restMs, settle: natsMembersTimes.settleMs },
  shows: { context: ["step.kind", "readingsWithMissing"], events: ["step.kind"] },
}).createMachine({
  id: "nats-members",
  context: { step: { kind: "none" }, missing: "", readingsWithMissing: 0 },
  initial: "reading",
  // Another reading follows soon. NM3
  ignore: ["managers.changed"],
  states: {
    reading: {
      description: "Reading which servers NATS has, and which of them have current copies. NM3",
      meta: {
        waitingFor: "NATS to list its servers",
        wokenBy: { "servers.read": "its answer", "reading.failed": "its silence" },
      },
      entry: "readServers",
      on: {
        "servers.read": { target: "deciding", actions: { type: "rememberReading", params: ({ event }) => event } },
        "reading.failed": "resting",
      },
    },
    deciding: {
      description: "Reporting missing copies, and choosing the next step. NM4",
      entry: {
        type: "reportMissing",
        params: ({ context }) => ({ sentence: context.readingsWithMissing >= readingsMin ? context.missing : "" }),
      },
      always: [
        { guard: "isToAdd", target: "adding" },
        { guard: "isToRemove", target: "removing" },
        { guard: "isToLearn", target: "learning" },
        "resting",
      ],
    },
    adding: {
      description: "Starting the nats-server of another manager in the cluster. NM2",
      meta: {
        waitingFor: "another manager to start its nats-server",
        wokenBy: { "step.taken": "its answer", "step.failed": "an error, or its silence" },
      },
      entry: { type: "add", params: ({ context }) => ({ step: context.step }) },
      on: { "step.taken": "settling", "step.failed": "resting" },
    },
    removing: {
      description: "Removing the nats-server of a manager that is none any more. NM1",
      meta: {
        waitingFor: "NATS to remove a server",
        wokenBy: { "step.taken": "its confirmation", "step.failed": "an error, or its silence" },
      },
      entry: { type: "remove", params: ({ context }) => ({ step: context.step }) },
      on: { "step.taken": "settling", "step.failed": "resting" },
    },
    learning: {
      description: "Asking the other managers for their list of servers.",
      meta: {
        waitingFor: "the other managers to send their lists of servers",
        wokenBy: { "step.taken": "a newer list, or the last answer", "step.failed": "an error, or its silence" },
      },
      entry: "learn",
      on: { "step.taken": "settling", "step.failed": "resting" },
    },
    settling: {
      description: "A step was taken: giving NATS time to follow it. NM3",
      meta: { waitingFor: "NATS to follow the last step", wokenBy: { settle: "the next reading" } },
      after: { settle: "reading" },
    },
    resting: {
      description: "Nothing is to be done now.",
      meta: {
        waitingFor: "nothing: the next reading comes by itself",
        wokenBy: { rest: "the end of the interval", "managers.changed": "a manager that joins, leaves or returns" },
      },
      on: { "managers.changed": "reading" },
      after: { rest: "reading" },
    },
  },
});
