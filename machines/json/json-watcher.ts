/**
 * One watcher of the JSON API: a client asks it for the next change, and it answers once there is one.
 *
 *   idle ⇄ waiting ──▶ over ──▶ stopped
 *     └────────┴─────────────────▲
 *
 * It is pull-based: nothing is kept for a client but how far it has been told, and what changed since then is found when
 * it asks. However much changes while it does not ask, it is one answer.
 *
 * JW1: an ask is answered only when something has changed since the answer before.
 * JW2: asks are answered in the order in which they came, each by a change of its own.
 * JW3: once it has stopped, everything that was asked has been answered.
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";

/**
 * `asked`: its client stopped it. `closed`: the connection or the manager ends. `crowded`: too many asks wait. `ended`: what
 * it watches is over, and all of it has been told.
 */
export type WatcherRefusal = "asked" | "closed" | "crowded" | "ended";

export type JsonWatcherEvent =
  /** A client asks for the next change. `hasNews`: whether there is something that it has not been told. */
  | { readonly type: "next.asked"; readonly ask: number; readonly hasNews: boolean }
  /** There is something that it has not been told. */
  | { readonly type: "news.found" }
  /** It has been told everything, and there will be nothing more. */
  | { readonly type: "news.ended" }
  | { readonly type: "stop.asked" }
  | { readonly type: "connection.closed" };

export interface JsonWatcherContext {
  /** What waits, oldest first. */
  readonly asks: readonly number[];
}

/** Asks that wait at one watcher. Clients have one; a second is legal, and no program needs more than some. */
export const asksMax = 64;

export const jsonWatcherMachine = setup({
  types: { context: {} as JsonWatcherContext, events: {} as JsonWatcherEvent },
  actions: {
    /** Answers with all that changed since the answer before. */
    answer: effect<{ ask: number }>("answer"),
    refuse: effect<{ asks: readonly number[]; reason: WatcherRefusal }>("refuse"),
    /** Has `news.found` sent when there is some. */
    awaitNews: effect("awaitNews"),
    stopAwaitingNews: effect("stopAwaitingNews"),
    /** Nobody will ask again. */
    release: effect("release"),
    reportUnexpected: effect("reportUnexpected"),
    enqueue: assign(({ context }, { ask }: { ask: number }) => ({ asks: [...context.asks, ask] })),
    dequeue: assign(({ context }) => ({ asks: context.asks.slice(1) })),
    forgetAsks: assign({ asks: [] }),
  },
  guards: {
    hasNews: (_, { hasNews }: { hasNews: boolean }) => hasNews,
    isCrowded: ({ context }) => context.asks.length >= asksMax,
    isLastAsk: ({ context }) => context.asks.length === 1,
  },
}).createMachine({
  id: "jsonWatcher",
  context: { asks: [] },
  initial: "idle",
  options: { maxIterations: 1_000 },
  on: {
    "stop.asked": {
      target: ".stopped",
      actions: { type: "refuse", params: ({ context }) => ({ asks: context.asks, reason: "asked" as const }) },
    },
    "connection.closed": {
      target: ".stopped",
      actions: { type: "refuse", params: ({ context }) => ({ asks: context.asks, reason: "closed" as const }) },
    },
    "*": { actions: "reportUnexpected" },
  },
  states: {
    idle: {
      description: "No Next call is open: nothing is watched or kept. JW1",
      on: {
        "next.asked": [
          {
            guard: { type: "hasNews", params: ({ event }) => event },
            actions: { type: "answer", params: ({ event }) => event },
          },
          { target: "waiting", actions: { type: "enqueue", params: ({ event }) => event } },
        ],
        // It was woken together with others, and has been answered meanwhile.
        "news.found": {},
        "news.ended": "over",
      },
    },
    waiting: {
      description: "A Next call is open; waiting for a change. JW2",
      entry: "awaitNews",
      exit: "stopAwaitingNews",
      on: {
        "next.asked": [
          {
            guard: "isCrowded",
            actions: { type: "refuse", params: ({ event }) => ({ asks: [event.ask], reason: "crowded" as const }) },
          },
          { actions: { type: "enqueue", params: ({ event }) => event } },
        ],
        "news.found": [
          {
            guard: "isLastAsk",
            target: "idle",
            actions: [{ type: "answer", params: ({ context }) => ({ ask: context.asks[0] ?? 0 }) }, "dequeue"],
          },
          { actions: [{ type: "answer", params: ({ context }) => ({ ask: context.asks[0] ?? 0 }) }, "dequeue"] },
        ],
        "news.ended": {
          target: "over",
          actions: [
            { type: "refuse", params: ({ context }) => ({ asks: context.asks, reason: "ended" as const }) },
            "forgetAsks",
          ],
        },
      },
    },
    over: {
      description:
        "No more changes will come, for example of the output of a removed task: each Next call is told so. JW3",
      on: {
        "next.asked": {
          actions: { type: "refuse", params: ({ event }) => ({ asks: [event.ask], reason: "ended" as const }) },
        },
        "news.found": {},
        "news.ended": {},
      },
    },
    stopped: {
      description: "Stopped; Next calls are told that the watcher does not exist. JW3",
      type: "final",
      entry: ["forgetAsks", "release"],
    },
  },
});
