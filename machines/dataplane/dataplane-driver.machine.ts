/**
 * The dataplane driver of a node, on the agent's side: a process that receives the node's rules and is kept running.
 *
 *   wait-for-ready ──▶ resync ──▶ in-sync { unheard | heard }
 *                        ▲           │
 *                        └── restarting { ending, waiting } ◀──┘          stopping ──▶ stopped
 *
 * D1: no driver is started before the node's state is known: an empty state would block all traffic.
 * D2: two drivers never program at the same time: the next one starts only when the previous one has exited.
 * D3: each driver gets the settings first, then the complete state, then InSync, then only changes.
 * D4: the wait before a restart grows with each failure, and shrinks only after a driver has run for `heldMs`. A restart for
 *     new settings does not wait.
 */
import { assign } from "xstate";
import { backoffMs } from "../../lib/backoff.ts";
import { chart, effect } from "../chart.ts";

/** Times in milliseconds. */
const dataplaneDriverTimes = {
  /** Felix's own service waits 1 to 2 seconds. */
  backoff: { stepMs: 1_000, msMax: 30_000 },
  /** A driver that has run this long is considered working. */
  heldMs: 60_000,
  /** Felix's ReportingTTLSecs: a driver that has reported, and then sends no report for this long, hangs. */
  pulseTtlMs: 90_000,
} as const;

export type DataplaneDriverEvent =
  /** The node's state and the settings are known. */
  | { readonly type: "state.ready" }
  | { readonly type: "settings.changed" }
  /** Everything was written, InSync last. */
  | { readonly type: "resync.sent" }
  | { readonly type: "pulse.received" }
  | { readonly type: "driver.broke"; readonly reason: string }
  /** The process has exited, whether or not it was asked to. */
  | { readonly type: "driver.exited"; readonly how: string }
  | { readonly type: "driver.unwanted" };

/** The driver's state as others see it. */
export interface DataplaneDriverNews {
  readonly state: "wait-for-ready" | "resync" | "in-sync" | "restarting" | "stopped";
  /** For operators; empty if there is nothing to report. */
  readonly reason: string;
}

interface DataplaneDriverContext {
  readonly name: string;
  /** Restarts since a driver last ran for `heldMs`. */
  readonly failures: number;
  readonly reason: string;
}

export const dataplaneDriverMachine = chart({
  types: {
    context: {} as DataplaneDriverContext,
    events: {} as DataplaneDriverEvent,
    input: {} as { readonly name: string },
  },
  effects: {
    /**
     * Starts a process and sends the settings and everything else; answered by `resync.sent`, `driver.broke` or
     * `driver.exited`.
     */
    launch: effect(),
    /** Answered by `driver.exited`. */
    endDriver: effect(),
    /** Nothing more is written to a driver that has exited. */
    forgetDriver: effect(),
    announce: effect<DataplaneDriverNews>(),
  },
  actions: {
    rememberReason: assign((_, { reason }: { reason: string }) => ({ reason })),
    forgetFailures: assign({ failures: 0 }),
    countFailure: assign({ failures: ({ context }) => context.failures + 1 }),
  },
  delays: {
    held: dataplaneDriverTimes.heldMs,
    pulseTtl: dataplaneDriverTimes.pulseTtlMs,
  },
  drawnDelays: { backoff: ({ context }) => backoffMs(dataplaneDriverTimes.backoff, context.failures) },
  shows: { context: ["name", "failures"] },
}).createMachine({
  id: "dataplaneDriver",
  context: ({ input }) => ({ name: input.name, failures: 0, reason: "" }),
  initial: "waitForReady",
  states: {
    waitForReady: {
      description: "The driver is not started: it is unknown what this node needs. D1",
      meta: {
        waitingFor: "a manager to send its network policy",
        wokenBy: { "state.ready": "its answer to the node's policy stream", "driver.unwanted": "the end of the agent" },
      },
      entry: { type: "announce", params: { state: "wait-for-ready", reason: "this node's needs are unknown yet" } },
      ignore: ["settings.changed"],
      on: { "state.ready": "resync", "driver.unwanted": "stopped" },
    },
    resync: {
      description:
        "Sending the driver everything. A driver that accepts nothing stays here, and the kernel's rules stay unchanged. D3",
      meta: {
        waitingFor: "{the dataplane driver} to read all of its rules",
        wokenBy: { "resync.sent": "the driver's reading", "driver.exited": "its exit", "driver.broke": "its failure" },
      },
      entry: [{ type: "announce", params: ({ context }) => ({ state: "resync", reason: context.reason }) }, "launch"],
      ignore: ["pulse.received"],
      on: {
        "resync.sent": "inSync",
        "settings.changed": {
          target: "restarting.renewing",
          actions: { type: "rememberReason", params: { reason: "its settings changed" } },
        },
        "driver.broke": {
          target: "restarting.ending",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
        },
        "driver.exited": {
          target: "restarting.waiting",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: `it ended: ${event.how}` }) },
        },
        "driver.unwanted": "stopping",
      },
    },
    inSync: {
      description: "The driver has everything; sending it changes.",
      tags: ["following"],
      entry: { type: "announce", params: { state: "in-sync", reason: "" } },
      initial: "notReporting",
      on: {
        "settings.changed": {
          target: "restarting.renewing",
          actions: { type: "rememberReason", params: { reason: "its settings changed" } },
        },
        "driver.broke": {
          target: "restarting.ending",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
        },
        "driver.exited": {
          target: "restarting.waiting",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: `it ended: ${event.how}` }) },
        },
        "driver.unwanted": "stopping",
      },
      after: { held: { actions: "forgetFailures" } },
      states: {
        notReporting: {
          description: "The driver has sent no report; some drivers never do.",
          meta: {
            waitingFor: "nothing: {the dataplane driver} has all rules",
            wokenBy: {
              "pulse.received": "the driver's first report",
              "settings.changed": "changed settings",
              "driver.exited": "its exit",
            },
          },
          on: { "pulse.received": "reporting" },
        },
        reporting: {
          description: "The driver reports; if the reports stop, it counts as hung.",
          meta: {
            waitingFor: "nothing: {the dataplane driver} has all rules",
            wokenBy: {
              "pulse.received": "the driver's next report",
              pulseTtl: "the time limit for that report",
              "driver.exited": "its exit",
            },
          },
          on: { "pulse.received": { target: "reporting", reenter: true } },
          after: {
            pulseTtl: {
              target: "#dataplaneDriver.restarting.ending",
              actions: { type: "rememberReason", params: { reason: "it stopped to report" } },
            },
          },
        },
      },
    },
    restarting: {
      description: "The driver has failed; the kernel's rules stay until another driver takes them over. D2",
      initial: "ending",
      entry: { type: "announce", params: ({ context }) => ({ state: "restarting", reason: context.reason }) },
      ignore: ["settings.changed", "pulse.received", "driver.broke", "resync.sent"],
      states: {
        ending: {
          description: "Ending what is left of the driver.",
          meta: { waitingFor: "{the dataplane driver} to be restarted", wokenBy: { "driver.exited": "its exit" } },
          entry: "endDriver",
          on: { "driver.exited": "waiting", "driver.unwanted": "#dataplaneDriver.stopping" },
        },
        renewing: {
          description: "Restarting the driver for new settings. D4",
          meta: { waitingFor: "{the dataplane driver} to be restarted", wokenBy: { "driver.exited": "its exit" } },
          entry: "endDriver",
          on: {
            "driver.exited": { target: "#dataplaneDriver.resync", actions: "forgetDriver" },
            "driver.unwanted": "#dataplaneDriver.stopping",
          },
        },
        waiting: {
          description: "The driver has ended; the next one starts after a delay. D4",
          meta: {
            waitingFor: "{the dataplane driver} to be restarted",
            wokenBy: { backoff: "the end of the delay, at most 30 s" },
          },
          entry: ["forgetDriver", "countFailure"],
          on: { "driver.unwanted": "#dataplaneDriver.stopped" },
          after: { backoff: "#dataplaneDriver.resync" },
        },
      },
    },
    stopping: {
      description: "No driver is wanted; ending this one.",
      meta: { waitingFor: "{the dataplane driver} to end", wokenBy: { "driver.exited": "its exit" } },
      entry: "endDriver",
      ignore: ["driver.broke", "pulse.received", "settings.changed"],
      on: { "driver.exited": "stopped" },
    },
    stopped: {
      description: "No driver runs; the kernel's rules stay unchanged.",
      type: "final",
      entry: ["forgetDriver", { type: "announce", params: { state: "stopped", reason: "" } }],
    },
  },
});
