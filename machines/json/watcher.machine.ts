/**
 * One watcher of the JSON API: a client requests the next change, and is answered once there is one.
 *
 *   idle ⇄ waiting ──▶ over ──▶ stopped
 *     └────────┴─────────────────▲
 *
 * A watcher is pull-based: it keeps only the client's position, and computes the changes since then on request. However much
 * changes between two requests, it is one answer.
 *
 * JW1: a request is answered only when something has changed since the previous answer.
 * JW2: requests are answered in the order of their arrival, each with a change of its own.
 * JW3: once the watcher has stopped, every request has been answered.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";

/**
 * `asked`: its client stopped it. `closed`: the connection or the manager ends. `crowded`: too many requests wait. `ended`:
 * the watched object no longer exists, and all its changes were sent.
 */
export type WatcherRefusal = "asked" | "closed" | "crowded" | "ended";

export type JsonWatcherEvent =
  /** A client requests the next change. `hasNews`: whether there are unsent changes. */
  | { readonly type: "next.requested"; readonly ask: number; readonly hasNews: boolean }
  /** There are unsent changes. */
  | { readonly type: "news.found" }
  /** All changes were sent, and there will be no more. */
  | { readonly type: "news.ended" }
  | { readonly type: "stop.requested" }
  | { readonly type: "connection.closed" };

interface JsonWatcherContext {
  /** Waiting requests, oldest first. */
  readonly asks: readonly number[];
}

/** Maximum number of waiting requests per watcher. Clients have one; more are legal, but no program needs many. */
export const asksMax = 64;

export const jsonWatcherMachine = chart({
  types: { context: {} as JsonWatcherContext, events: {} as JsonWatcherEvent },
  effects: {
    /** Answers with everything that changed since the previous answer. */
    answer: effect<{ ask: number }>(),
    refuse: effect<{ asks: readonly number[]; reason: WatcherRefusal }>(),
    /** Requests `news.found` for the next change. */
    awaitNews: effect(),
    stopAwaitingNews: effect(),
    /** No more requests will come. */
    release: effect(),
  },
  actions: {
    enqueue: assign(({ context }, { ask }: { ask: number }) => ({ asks: [...context.asks, ask] })),
    dequeue: assign(({ context }) => ({ asks: context.asks.slice(1) })),
    forgetAsks: assign({ asks: [] }),
  },
  guards: {
    hasNews: (_, { hasNews }: { hasNews: boolean }) => hasNews,
    isCrowded: ({ context }) => context.asks.length >= asksMax,
    isLastAsk: ({ context }) => context.asks.length === 1,
  },
  shows: { context: ["asks"], events: ["ask", "hasNews"] },
}).createMachine({
  id: "jsonWatcher",
  context: { asks: [] },
  initial: "idle",
  on: {
    "stop.requested": {
      target: ".stopped",
      actions: { type: "refuse", params: ({ context }) => ({ asks: context.asks, reason: "asked" as const }) },
    },
    "connection.closed": {
      target: ".stopped",
      actions: { type: "refuse", params: ({ context }) => ({ asks: context.asks, reason: "closed" as const }) },
    },
  },
  states: {
    idle: {
      description: "No Next call is open: nothing is watched or kept. JW1",
      meta: {
        waitingFor: "a Next call",
        wokenBy: { "next.requested": "the call", "news.ended": "the end of the changes" },
      },
      ignore: [
        // The watcher was woken together with others, and was answered meanwhile.
        "news.found",
      ],
      on: {
        "next.requested": [
          {
            guard: { type: "hasNews", params: ({ event }) => event },
            actions: { type: "answer", params: ({ event }) => event },
          },
          { target: "waiting", actions: { type: "enqueue", params: ({ event }) => event } },
        ],
        "news.ended": "over",
      },
    },
    waiting: {
      description: "A Next call is open. JW2",
      meta: {
        waitingFor: "a change, for the open Next call",
        wokenBy: { "news.found": "a change", "news.ended": "the end of the changes" },
      },
      entry: "awaitNews",
      exit: "stopAwaitingNews",
      on: {
        "next.requested": [
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
        "No more changes will come, for example of the output of a removed task: each Next call is answered with that. JW3",
      meta: {
        waitingFor: "the client to stop the watcher",
        wokenBy: { "stop.requested": "the Stop call", "connection.closed": "the end of the connection" },
      },
      ignore: ["news.found", "news.ended"],
      on: {
        "next.requested": {
          actions: { type: "refuse", params: ({ event }) => ({ asks: [event.ask], reason: "ended" as const }) },
        },
      },
    },
    stopped: {
      description: "Stopped; Next calls get an error: the watcher does not exist. JW3",
      type: "final",
      entry: ["forgetAsks", "release"],
    },
  },
});
