/**
 * How a manager obtains a data key that it lacks, because the log has a record under it or another manager reports it: it
 * asks the other managers, one after the other, over mutual TLS.
 *
 *   idle ──▶ asking ──▶ idle
 *             │  ▲
 *             ▼  │
 *           pausing, denied
 *
 * Y1: a process that the others repeatedly refuse because it is not a manager gives up: it was demoted or removed while it
 *     did not run, and the log that says so is under a key that it does not get.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";

const keyFetchTimes = {
  /** Milliseconds between two rounds over all managers. Meanwhile, reading of the log is suspended. */
  retryMs: 1_000,
  /**
   * Rounds in a row in which a manager refused and none sent the key: a lagging manager refuses one that was just promoted,
   * and catches up within seconds.
   */
  denialsMax: 10,
} as const;

type KeyFetchEvent =
  /** Ids of the missing keys; empty if none is missing. */
  | { readonly type: "keys.read"; readonly lacking: readonly string[] }
  /** Every manager was asked. `isDenied`: one refused this manager, and none sent the missing key. */
  | { readonly type: "round.ended"; readonly reason: string; readonly isDenied: boolean };

interface KeyFetchContext {
  readonly lacking: readonly string[];
  /** Why the last round failed; empty if it did not. */
  readonly reason: string;
  /** Denied rounds in a row. */
  readonly denials: number;
}

export const keyFetchMachine = chart({
  types: { context: {} as KeyFetchContext, events: {} as KeyFetchEvent },
  effects: {
    /** Asks every manager; answered by `round.ended`, or earlier by `keys.read` when a key has arrived. */
    ask: effect(),
    /** Answered by `keys.read`. */
    look: effect(),
    /** The process must exit. */
    giveUp: effect<{ reason: string }>(),
  },
  actions: {
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
  shows: { context: ["lacking", "denials"], events: ["lacking", "isDenied"] },
}).createMachine({
  id: "keyFetch",
  context: { lacking: [], reason: "", denials: 0 },
  initial: "idle",
  on: {
    "keys.read": { actions: { type: "rememberLacking", params: ({ event }) => ({ lacking: event.lacking }) } },
  },
  states: {
    idle: {
      description: "Every known key is held.",
      meta: { waitingFor: "a key that this process lacks", wokenBy: { "keys.read": "its announcement in the log" } },
      on: {
        "keys.read": {
          guard: { type: "lacks", params: ({ event }) => ({ lacking: event.lacking }) },
          target: "asking",
          actions: { type: "rememberLacking", params: ({ event }) => ({ lacking: event.lacking }) },
        },
      },
    },
    asking: {
      description: "Fetching missing keys from other managers, first from those that announced them.",
      meta: { waitingFor: "other managers' answers", wokenBy: { "round.ended": "the last answer" } },
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
      description: "Every manager was asked.",
      meta: { waitingFor: "the next look for missing keys", wokenBy: { retryDelay: "the end of the delay" } },
      after: { retryDelay: { target: "idle", actions: "look" } },
    },
    denied: {
      description: "Other managers refuse to hand out keys: this process is no longer a manager and must end. Y1",
      meta: {
        waitingFor: "the end of this process, which is no longer a manager",
        wokenBy: { retryDelay: "the next look for missing keys" },
      },
      entry: { type: "giveUp", params: ({ context }) => ({ reason: context.reason }) },
      after: { retryDelay: { target: "idle", actions: "look" } },
    },
  },
});
