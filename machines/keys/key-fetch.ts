/**
 * How a manager comes by a data key that it lacks: the log has a record under it, or another manager tells that it holds it.
 * It asks the others, one after the other, over mutual TLS.
 *
 *   idle ──▶ asking ──▶ idle
 *             │  ▲
 *             ▼  │
 *           pausing
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";

const keyFetchTimes = {
  /** Between two rounds of asking everybody, in milliseconds. Meanwhile the log is read no further. */
  retryMs: 1_000,
} as const;

export type KeyFetchEvent =
  /** Ids of what is lacking now; none: nothing is. */
  | { readonly type: "keys.looked"; readonly lacking: readonly string[] }
  /** Everybody was asked. */
  | { readonly type: "round.ended"; readonly reason: string };

interface KeyFetchContext {
  readonly lacking: readonly string[];
  /** What the last round came to, in a sentence; empty: it was not in vain. */
  readonly reason: string;
}

export const keyFetchMachine = setup({
  types: { context: {} as KeyFetchContext, events: {} as KeyFetchEvent },
  actions: {
    /** Asks everybody, and is answered by `round.ended`; before that by `keys.looked` when a key has come. */
    ask: effect("ask"),
    /** Answered by `keys.looked`. */
    look: effect("look"),
    reportUnexpected: effect("reportUnexpected"),
    rememberLacking: assign((_, { lacking }: { lacking: readonly string[] }) => ({ lacking })),
    rememberReason: assign((_, { reason }: { reason: string }) => ({ reason })),
  },
  guards: { lacks: (_, { lacking }: { lacking: readonly string[] }) => lacking.length > 0 },
  delays: { retryDelay: keyFetchTimes.retryMs },
}).createMachine({
  id: "keyFetch",
  context: { lacking: [], reason: "" },
  initial: "idle",
  options: { maxIterations: 1_000 },
  on: {
    "*": { actions: "reportUnexpected" },
    "keys.looked": { actions: { type: "rememberLacking", params: ({ event }) => ({ lacking: event.lacking }) } },
  },
  states: {
    idle: {
      description: "Every key that is known of is held.",
      on: {
        "keys.looked": {
          guard: { type: "lacks", params: ({ event }) => ({ lacking: event.lacking }) },
          target: "asking",
          actions: { type: "rememberLacking", params: ({ event }) => ({ lacking: event.lacking }) },
        },
      },
    },
    asking: {
      description: "Other managers are asked, those first that told of the key.",
      entry: "ask",
      on: {
        "round.ended": {
          target: "pausing",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
        },
      },
    },
    pausing: {
      description: "Everybody was asked; looks after a while whether anything is lacking still.",
      after: { retryDelay: { target: "idle", actions: "look" } },
    },
  },
});
