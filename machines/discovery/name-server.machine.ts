/**
 * Whether an agent answers its tasks' DNS queries: it listens while tasks on its node have networks.
 *
 *   closed ──wanted──▶ opening ──▶ serving
 *     ▲  │               ▲ ▲ │          │
 *     │  └ left          │ │ └▶ waiting ◀┘ lost
 *     │      ▼  ──wanted─┘ └──────┘
 *     └── clearing ◀── unwanted (from these three)
 *            ▲ ▼
 *           dirty ──wanted──▶ opening
 *
 * NV1: while the server is wanted, a failed or lost server is opened again; the wait grows with each attempt.
 * NV2: a failed removal is retried until it succeeds, or the server is wanted again.
 */
import { assign } from "xstate";
import { backoffMs, type Backoff } from "../../lib/backoff.ts";
import { chart, effect } from "../chart.ts";

/** Times in milliseconds. If the address is in use, it is usually by another server that somebody must stop. */
const nameServerBackoff: Backoff = { stepMs: 500, msMax: 30_000 };

export type NameServerEvent =
  | { readonly type: "names.wanted" }
  | { readonly type: "names.unwanted" }
  /** The server is not wanted, but an earlier run of the agent left something. */
  | { readonly type: "names.left" }
  | { readonly type: "server.opened" }
  /** The server could not be opened, or failed. */
  | { readonly type: "server.lost"; readonly reason: string }
  /** Nothing of the server is left on the node. */
  | { readonly type: "server.cleared" }
  /** Something could not be removed. */
  | { readonly type: "server.kept" };

interface NameServerContext {
  readonly failures: number;
  /** Why the server is not serving; empty if it is serving or not wanted. */
  readonly reason: string;
}

type Lost = Extract<NameServerEvent, { type: "server.lost" }>;

export const nameServerMachine = chart({
  types: { context: {} as NameServerContext, events: {} as NameServerEvent },
  effects: {
    /** Answered by `server.opened` or `server.lost`. */
    open: effect(),
    /** Abandons what was opened or is being opened. Answered by `server.cleared` or `server.kept`. */
    close: effect(),
  },
  actions: {
    countFailure: assign(({ context }, { reason }: { readonly reason: string }) => ({
      failures: context.failures + 1,
      reason,
    })),
    countTry: assign({ failures: ({ context }) => context.failures + 1, reason: "" }),
    forgetFailures: assign({ failures: 0, reason: "" }),
  },
  drawnDelays: { backoff: ({ context }) => backoffMs(nameServerBackoff, context.failures) },
  shows: { context: ["failures"] },
}).createMachine({
  id: "nameServer",
  context: { failures: 0, reason: "" },
  initial: "closed",
  ignore: ["names.wanted"],
  on: {
    "names.unwanted": { target: ".clearing", actions: "forgetFailures" },
  },
  states: {
    closed: {
      description: "Not listening: no task on this node has a network.",
      meta: { waitingFor: "a task with a network", wokenBy: { "names.wanted": "the first such task" } },
      entry: "forgetFailures",
      ignore: ["names.unwanted"],
      on: { "names.wanted": "opening", "names.left": "clearing" },
    },
    clearing: {
      description: "No task on this node has a network any more: removing what was set up for names.",
      meta: {
        waitingFor: "the node, to remove what was set up for names",
        wokenBy: { "server.*": "its answer", "names.wanted": "a task with a network" },
      },
      entry: "close",
      ignore: ["names.unwanted"],
      on: {
        "server.cleared": "closed",
        "server.kept": { target: "dirty", actions: "countTry" },
        "names.wanted": { target: "opening", actions: "forgetFailures" },
      },
    },
    dirty: {
      description: "Something could not be removed. NV2",
      meta: {
        waitingFor: "the next attempt to remove the rest",
        wokenBy: { backoff: "the end of the delay", "names.wanted": "a task with a network" },
      },
      after: { backoff: "clearing" },
      ignore: ["names.unwanted"],
      on: { "names.wanted": { target: "opening", actions: "forgetFailures" } },
    },
    opening: {
      description: "Adding the address to the node and opening the port.",
      meta: { waitingFor: "the node, to open address and port", wokenBy: { "server.*": "its answer" } },
      entry: "open",
      on: {
        "server.opened": "serving",
        "server.lost": {
          target: "waiting",
          actions: { type: "countFailure", params: ({ event }: { event: Lost }) => ({ reason: event.reason }) },
        },
      },
    },
    serving: {
      description: "Answering queries.",
      meta: {
        waitingFor: "nothing: names are answered",
        wokenBy: { "server.lost": "the loss of the port", "names.unwanted": "the end of the last task with a network" },
      },
      tags: ["serving"],
      entry: "forgetFailures",
      on: {
        "server.lost": {
          target: "waiting",
          actions: { type: "countFailure", params: ({ event }: { event: Lost }) => ({ reason: event.reason }) },
        },
      },
    },
    waiting: {
      description:
        "Cannot listen: new tasks get the node's own name servers; tasks that were given this one get no answer. NV1",
      meta: {
        waitingFor: "the next attempt to listen",
        wokenBy: { backoff: "the end of the delay", "names.unwanted": "the end of the last task with a network" },
      },
      after: { backoff: "opening" },
    },
  },
});
