/**
 * How a manager comes by a data key that it lacks: the log has a record under it, or another manager tells that it holds it.
 * It asks the others, one after the other, over mutual TLS.
 *
 *   idle ──▶ asking ──▶ idle
 *             │  ▲
 *             ▼  │
 *           pausing, denied
 *
 * Y1: one whom the others refuse as no manager of theirs, again and again, gives up: it was demoted or removed while it did not
 *     run, and the log that says so is under a key which it is not given.
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";

const keyFetchTimes = {
  /** Between two rounds of asking everybody, in milliseconds. Meanwhile the log is read no further. */
  retryMs: 1_000,
  /**
   * Rounds in a row in which somebody refused and nobody gave: a manager that lags refuses one that has just been promoted, and
   * follows within seconds.
   */
  denialsMax: 10,
} as const;

export type KeyFetchEvent =
  /** Ids of what is lacking now; none: nothing is. */
  | { readonly type: "keys.looked"; readonly lacking: readonly string[] }
  /** Everybody was asked. `isDenied`: somebody refused to answer this manager, and nobody gave what it lacks. */
  | { readonly type: "round.ended"; readonly reason: string; readonly isDenied: boolean };

interface KeyFetchContext {
  readonly lacking: readonly string[];
  /** What the last round came to, in a sentence; empty: it was not in vain. */
  readonly reason: string;
  /** Rounds in a row that were denied. */
  readonly denials: number;
}

export const keyFetchMachine = setup({
  types: { context: {} as KeyFetchContext, events: {} as KeyFetchEvent },
  actions: {
    /** Asks everybody, and is answered by `round.ended`; before that by `keys.looked` when a key has come. */
    ask: effect("ask"),
    /** Answered by `keys.looked`. */
    look: effect("look"),
    /** The process is to end. */
    giveUp: effect<{ reason: string }>("giveUp"),
    reportUnexpected: effect("reportUnexpected"),
    rememberLacking: assign((_, { lacking }: { lacking: readonly string[] }) => ({ lacking })),
    rememberRound: assign(({ context }, { reason, isDenied }: { reason: string; isDenied: boolean }) => ({
      reason,
      denials: isDenied ? context.denials + 1 : 0,
    })),
  },
  guards: {
    isDeniedForGood: ({ context }, { isDenied }: { isDenied: boolean }) =>
      isDenied && context.denials + 1 >= keyFetchTimes.denialsMax,
    lacks: (_, { lacking }: { lacking: readonly string[] }) => lacking.length > 0,
  },
  delays: { retryDelay: keyFetchTimes.retryMs },
}).createMachine({
  id: "keyFetch",
  context: { lacking: [], reason: "", denials: 0 },
  initial: "idle",
  options: { maxIterations: 1_000 },
  on: {
    "*": { actions: "reportUnexpected" },
    "keys.looked": { actions: { type: "rememberLacking", params: ({ event }) => ({ lacking: event.lacking }) } },
  },
  states: {
    idle: {
      description: "Every known key is held.",
      on: {
        "keys.looked": {
          guard: { type: "lacks", params: ({ event }) => ({ lacking: event.lacking }) },
          target: "asking",
          actions: { type: "rememberLacking", params: ({ event }) => ({ lacking: event.lacking }) },
        },
      },
    },
    asking: {
      description: "Fetching missing keys from other managers, first from those that announced them.",
      entry: "ask",
      on: {
        "round.ended": [
          {
            guard: { type: "isDeniedForGood", params: ({ event }) => ({ isDenied: event.isDenied }) },
            target: "denied",
            actions: {
              type: "rememberRound",
              params: ({ event }) => ({ reason: event.reason, isDenied: event.isDenied }),
            },
          },
          {
            target: "pausing",
            actions: {
              type: "rememberRound",
              params: ({ event }) => ({ reason: event.reason, isDenied: event.isDenied }),
            },
          },
        ],
      },
    },
    pausing: {
      description: "Every manager was asked; waiting before checking again for missing keys.",
      after: { retryDelay: { target: "idle", actions: "look" } },
    },
    denied: {
      description: "Other managers refuse to hand out keys: this process is no longer a manager and must end. Y1",
      entry: { type: "giveUp", params: ({ context }) => ({ reason: context.reason }) },
      after: { retryDelay: { target: "idle", actions: "look" } },
    },
  },
});
