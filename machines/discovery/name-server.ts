/**
 * Whether an agent answers its tasks' questions for names: it listens while there are tasks with networks on its node.
 *
 *   closed ──wanted──▶ opening ──▶ serving
 *     ▲                  ▲ │          │
 *     └── unwanted       │ └▶ waiting ◀┘ lost
 *         (from anywhere)└──────┘
 *
 * NV1: what cannot be opened, or is lost, is tried again for as long as it is wanted; the wait grows with each try.
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";

/** Times in milliseconds. Who has the address is another server as a rule, which somebody has to end. */
const nameServerTimes = { backoffMsMin: 500, backoffMsMax: 30_000 } as const;

export type NameServerEvent =
  | { readonly type: "names.wanted" }
  | { readonly type: "names.unwanted" }
  | { readonly type: "server.opened" }
  /** It could not be opened, or ended by itself. */
  | { readonly type: "server.lost"; readonly reason: string };

export interface NameServerContext {
  readonly failures: number;
  /** Why it does not serve; empty: it does, or nobody wants it to. */
  readonly reason: string;
}

type Lost = Extract<NameServerEvent, { type: "server.lost" }>;

export const nameServerMachine = setup({
  types: { context: {} as NameServerContext, events: {} as NameServerEvent },
  actions: {
    /** Answered by `server.opened` or `server.lost`. */
    open: effect("open"),
    /** Nothing more is heard of what was opened, or is being opened. */
    close: effect("close"),
    reportUnexpected: effect("reportUnexpected"),
    countFailure: assign(({ context }, { reason }: { readonly reason: string }) => ({
      failures: context.failures + 1,
      reason,
    })),
    forgetFailures: assign({ failures: 0, reason: "" }),
  },
  delays: {
    /** The host draws from its upper half. */
    backoff: ({ context }) =>
      Math.min(nameServerTimes.backoffMsMax, nameServerTimes.backoffMsMin * 2 ** Math.max(0, context.failures - 1)),
  },
}).createMachine({
  id: "nameServer",
  context: { failures: 0, reason: "" },
  initial: "closed",
  options: { maxIterations: 1_000 },
  on: {
    "names.wanted": {},
    "names.unwanted": { target: ".closed", actions: "close" },
    "*": { actions: "reportUnexpected" },
  },
  states: {
    closed: {
      description: "No task of this node has a network: nothing listens.",
      entry: "forgetFailures",
      on: { "names.wanted": "opening", "names.unwanted": {} },
    },
    opening: {
      description: "The address is being put on the node, and listened at.",
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
      description: "Questions are answered.",
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
        "It cannot be listened: tasks that are started meanwhile ask the node's own servers, and those that were told to ask here get no answer. NV1",
      after: { backoff: "opening" },
    },
  },
});
