/**
 * One registration of one node, seen from the manager that holds it.
 *
 *   registering ──▶ serving { connected ⇄ disconnected } ──▶ suspect ⇄ checking ──▶ expiring ──▶ expired
 *   adopted ───────▶ (serving | suspect)                        any but the final ones ──▶ replaced | forgotten | removed | stopped
 *
 * S1: nothing is served before the registration (READY, description, address, Session record) is in the log.
 * S2: a node is declared DOWN only by the session that the log still names: the write is fenced by the session id.
 * S3: a node is declared DOWN only after the mass-down breaker granted it (`requestVerdict`), and any sign of life before the
 *     write withdraws the suspicion.
 * S4: each session ends exactly once, through `endSession`, which closes all its streams.
 * S5: a node is never sent an older version than it was sent before. One manager creates a session's id, so an agent that
 *     names it has used no other since; an agent that comes from another manager gets a new id through the log, however sure
 *     its manager is that it never left (docs/adr/0028). A manager that is cut off from the log resumes no sessions: its
 *     agents should find another.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";

/** Times in milliseconds. */
export const sessionTimes = {
  /** SwarmKit's default period between heartbeats (worker protocol §4.1). */
  heartbeatPeriodMs: 5_000,
  /** A node is missed after this many of the periods that it was last sent (§4.1). */
  graceFactor: 3,
  /** Periods to wait for a node whose manager is gone (§4.1). */
  unknownGraceFactor: 6,
  /**
   * From a broken stream to the suspicion. SwarmKit would wait for the heartbeats (up to 16.5 s). An agent's back-off draws
   * from [0, 0.1), [0, 0.3), [0, 0.7), [0, 1.5), [0, 3.1) s …, so after an outage of 3 s it has nearly always tried again
   * before 6 s; and a dead node's tasks must run elsewhere within 8 s, of which this leaves 2.
   */
  reconnectGraceMsMin: 6_000,
  /** Share of the heartbeat grace period: a cluster with longer heartbeat periods also detects broken streams later. */
  reconnectShare: 0.36,
  /**
   * From the suspicion to the verdict: heartbeats that lie unread in the sockets can withdraw it (after a pause of this
   * process, all timers fire before the first byte is read), and nodes that fail together are counted together.
   */
  verdictDelayMs: 150,
} as const;

/** Milliseconds from a broken stream to the suspicion, for a node with a grace period of `graceMs`. */
export function reconnectGraceMs(graceMs: number): number {
  return Math.max(sessionTimes.reconnectGraceMsMin, graceMs * sessionTimes.reconnectShare);
}

export type SessionEnd = "expired" | "replaced" | "forgotten" | "removed" | "stopped";

export type SessionEvent =
  | { readonly type: "registration.committed"; readonly at: number; readonly graceMs: number }
  | { readonly type: "session.resumed"; readonly at: number; readonly graceMs: number; readonly changed: boolean }
  /** A heartbeat; not sent in `serving.connected`, where the actor tracks them. */
  | { readonly type: "heartbeat"; readonly at: number; readonly graceMs: number }
  /** While serving: no heartbeat for the whole grace period. */
  | { readonly type: "heartbeats.missed" }
  | { readonly type: "stream.broken"; readonly at: number; readonly graceMs: number }
  /** The log says that this node is not READY, although this session is alive. */
  | { readonly type: "node.doubted" }
  | { readonly type: "session.superseded" }
  | { readonly type: "session.forgotten" }
  | { readonly type: "node.removed" }
  | { readonly type: "verdict.granted" }
  | { readonly type: "verdict.held"; readonly at: number; readonly recheckMs: number; readonly reason: string }
  | { readonly type: "down.committed" }
  /** Another registration was committed first. */
  | { readonly type: "down.overtaken" }
  | { readonly type: "down.unavailable"; readonly at: number; readonly recheckMs: number; readonly reason: string }
  | { readonly type: "dispatcher.stopped" };

export interface SessionInput {
  readonly nodeId: string;
  readonly sessionId: string;
  readonly at: number;
  /** True if the session was found in the log, from an earlier run of this manager, with no sign of life since. */
  readonly adopted: boolean;
  /** Used while adopted, in milliseconds. */
  readonly unknownGraceMs: number;
  /** From the last sign of life to the suspicion, in milliseconds. */
  readonly graceMs: number;
}

export interface SessionContext extends SessionInput {
  /** Whether a Session stream is open. */
  readonly connected: boolean;
  /** When `connected` last changed. */
  readonly linkAt: number;
  /** Whether there was a sign of life since the session last became suspect, or since its DOWN was sent. */
  readonly heard: boolean;
  readonly recheckMs: number;
  /** Why the verdict was held; empty if it was not. */
  readonly heldBecause: string;
  readonly heldAt: number;
}

interface Life {
  readonly at: number;
  readonly graceMs: number;
}
interface Hold {
  readonly at: number;
  readonly recheckMs: number;
  readonly reason: string;
}

export const sessionMachine = chart({
  types: {
    context: {} as SessionContext,
    events: {} as SessionEvent,
    input: {} as SessionInput,
    output: {} as { readonly end: SessionEnd },
    tags: {} as "missing" | "serving",
  },
  effects: {
    /** Proposes READY with description and address, and the Session record; answered by `registration.committed`. */
    register: effect<{ sessionId: string }>(),
    /** Writes the first or a complete SessionMessage to the stream, if it is open. */
    sendSessionMessage: effect(),
    /** Notifies the other managers. */
    announceRegistration: effect<{ sessionId: string }>(),
    /** Writes READY again if the log says otherwise. */
    confirmReady: effect(),
    /** Answered by `verdict.granted` or `verdict.held`. */
    requestVerdict: effect(),
    /** Answered by one of the `down.*` events. */
    declareDown: effect<{ sessionId: string }>(),
    /** Watches for a gap of `graceMs` in the signs of life, the last of which was `at`; answered by `heartbeats.missed`. */
    countHeartbeats: effect<Life>(),
    endSession: effect<{ end: SessionEnd }>(),
  },
  actions: {
    /** A heartbeat or a resumed session: its sender is connected. */
    rememberLife: assign((_, { at, graceMs }: Life) => ({
      at,
      graceMs,
      heard: true,
      connected: true,
      // After a sign of life, the session gets no more time than any other.
      adopted: false,
    })),
    rememberRegistration: assign((_, { at, graceMs }: Life) => ({ at, graceMs })),
    rememberOpen: assign((_, { at }: { at: number }) => ({ connected: true, linkAt: at })),
    rememberBroken: assign((_, { at, graceMs }: Life) => ({ connected: false, linkAt: at, graceMs })),
    rememberHold: assign((_, { at, recheckMs, reason }: Hold) => ({ heldAt: at, recheckMs, heldBecause: reason })),
    forgetHold: assign({ heldBecause: "", recheckMs: sessionTimes.verdictDelayMs, heard: false }),
    forgetHeard: assign({ heard: false }),
  },
  guards: {
    isAdopted: ({ context }) => context.adopted,
    isConnected: ({ context }) => context.connected,
    wasHeard: ({ context }) => context.heard,
    isChanged: (_, { changed }: { changed: boolean }) => changed,
  },
  delays: {
    unknownGrace: ({ context }) => context.unknownGraceMs,
    reconnectGrace: ({ context }) => reconnectGraceMs(context.graceMs),
    verdictDelay: ({ context }) => context.recheckMs,
  },
  shows: {
    context: [
      "nodeId",
      "sessionId.$same",
      "at",
      "adopted",
      "unknownGraceMs",
      "graceMs",
      "connected",
      "linkAt",
      "heard",
      "recheckMs",
      "heldAt",
    ],
    events: ["at", "graceMs", "changed", "recheckMs"],
  },
}).createMachine({
  id: "session",
  context: ({ input }) => ({
    ...input,
    connected: !input.adopted,
    linkAt: input.at,
    heard: false,
    recheckMs: sessionTimes.verdictDelayMs,
    heldBecause: "",
    heldAt: 0,
  }),
  output: ({ event }) => (event as unknown as { output: { end: SessionEnd } }).output,
  initial: "starting",
  ignore: [
    "registration.committed",
    "node.doubted",
    "heartbeats.missed",
    "down.committed",
    "down.overtaken",
    "down.unavailable",
    "verdict.granted",
    "verdict.held",
  ],
  on: {
    "session.superseded": ".replaced",
    "node.removed": ".removed",
    "dispatcher.stopped": ".stopped",
    "session.forgotten": ".forgotten",
    "stream.broken": { actions: { type: "rememberBroken", params: ({ event }) => event } },
  },
  states: {
    starting: {
      description: "Choosing the first state; never rests here.",
      always: [{ guard: "isAdopted", target: "adopted" }, { target: "registering" }],
    },
    adopted: {
      description: "The log names this session from an earlier run of this manager.",
      meta: {
        waitingFor: "the agent to resume its session, which this manager adopted after a restart",
        wokenBy: {
          "session.resumed": "a Session call",
          heartbeat: "a heartbeat",
          unknownGrace: "the end of the grace period, after which the node is suspected",
        },
      },
      tags: ["missing"],
      on: {
        heartbeat: {
          target: "serving",
          actions: [{ type: "rememberLife", params: ({ event }) => event }, "confirmReady"],
        },
        "session.resumed": [
          {
            guard: { type: "isChanged", params: ({ event }) => event },
            target: "registering",
            actions: [
              { type: "rememberOpen", params: ({ event }) => event },
              { type: "rememberLife", params: ({ event }) => event },
            ],
          },
          {
            target: "serving",
            actions: [
              { type: "rememberOpen", params: ({ event }) => event },
              { type: "rememberLife", params: ({ event }) => event },
              "sendSessionMessage",
            ],
          },
        ],
      },
      after: { unknownGrace: "suspect" },
    },
    registering: {
      description: "Writing READY, description, address and Session record, however long the log takes. S1",
      meta: {
        waitingFor: "the commit of the node's registration",
        wokenBy: { "registration.committed": "the log's answer" },
      },
      entry: { type: "register", params: ({ context }) => ({ sessionId: context.sessionId }) },
      ignore: [
        // The record of the new registration follows in the log.
        "session.forgotten",
      ],
      on: {
        "registration.committed": [
          {
            guard: "isConnected",
            target: "serving",
            actions: [
              { type: "rememberRegistration", params: ({ event }) => event },
              { type: "announceRegistration", params: ({ context }) => ({ sessionId: context.sessionId }) },
              "sendSessionMessage",
            ],
          },
          {
            target: "serving.disconnected",
            actions: [
              { type: "rememberRegistration", params: ({ event }) => event },
              { type: "announceRegistration", params: ({ context }) => ({ sessionId: context.sessionId }) },
            ],
          },
        ],
        // The agent already knew the session when it resumed with another description.
        heartbeat: { actions: { type: "rememberLife", params: ({ event }) => event } },
        "session.resumed": [
          {
            guard: { type: "isChanged", params: ({ event }) => event },
            target: "registering",
            reenter: true,
            actions: { type: "rememberOpen", params: ({ event }) => event },
          },
          { actions: { type: "rememberOpen", params: ({ event }) => event } },
        ],
      },
    },
    serving: {
      description:
        "Registered. The actor itself counts heartbeats and reports when they stop: a transition for each heartbeat would cost more than the rest of its handling.",
      tags: ["serving"],
      entry: { type: "countHeartbeats", params: ({ context: { at, graceMs } }) => ({ at, graceMs }) },
      initial: "connected",
      on: {
        "heartbeats.missed": "suspect",
        "session.resumed": [
          {
            guard: { type: "isChanged", params: ({ event }) => event },
            target: "registering",
            actions: [
              { type: "rememberOpen", params: ({ event }) => event },
              { type: "rememberLife", params: ({ event }) => event },
            ],
          },
          {
            target: "serving",
            reenter: true,
            actions: [
              { type: "rememberOpen", params: ({ event }) => event },
              { type: "rememberLife", params: ({ event }) => event },
              "sendSessionMessage",
            ],
          },
        ],
      },
      states: {
        connected: {
          description: "The Session stream is open, or a heartbeat arrived after it broke.",
          meta: {
            waitingFor: "nothing: the node is served by this manager",
            wokenBy: { "stream.broken": "a broken Session stream", "heartbeats.missed": "missed heartbeats" },
          },
          on: {
            "stream.broken": {
              target: "disconnected",
              actions: { type: "rememberBroken", params: ({ event }) => event },
            },
            "node.doubted": { actions: "confirmReady" },
          },
        },
        disconnected: {
          description:
            "The Session stream broke; the agent may reconnect within the reconnect grace, if the heartbeat grace is longer.",
          meta: {
            waitingFor: "the agent to come back: its Session stream broke",
            wokenBy: {
              "session.resumed": "a Session call",
              heartbeat: "a heartbeat",
              reconnectGrace: "the end of the reconnect grace, after which the node is suspected",
            },
          },
          tags: ["missing"],
          on: {
            heartbeat: {
              target: "#session.serving.connected",
              reenter: true,
              actions: [{ type: "rememberLife", params: ({ event }) => event }, "confirmReady"],
            },
          },
          after: { reconnectGrace: "#session.suspect" },
        },
      },
    },
    suspect: {
      description:
        "A deadline passed: this manager asks shortly whether the node may be declared DOWN, or asks again later. S3",
      meta: {
        waitingFor: "the verdict on whether the node is DOWN, since it missed its heartbeats",
        wokenBy: { heartbeat: "a heartbeat", "session.resumed": "a Session call", verdictDelay: "the next check" },
      },
      tags: ["missing"],
      entry: "forgetHeard",
      on: {
        heartbeat: {
          target: "serving",
          actions: [{ type: "rememberLife", params: ({ event }) => event }, "forgetHold", "confirmReady"],
        },
        "session.resumed": [
          {
            guard: { type: "isChanged", params: ({ event }) => event },
            target: "registering",
            actions: [
              { type: "rememberOpen", params: ({ event }) => event },
              { type: "rememberLife", params: ({ event }) => event },
              "forgetHold",
            ],
          },
          {
            target: "serving",
            actions: [
              { type: "rememberOpen", params: ({ event }) => event },
              { type: "rememberLife", params: ({ event }) => event },
              "forgetHold",
              "sendSessionMessage",
            ],
          },
        ],
      },
      after: { verdictDelay: "checking" },
    },
    checking: {
      description:
        "Asking the mass-down breaker whether this process's view can be trusted and how many nodes are missing at once. S3",
      meta: {
        waitingFor: "the verdict on whether the node is DOWN, since it missed its heartbeats",
        wokenBy: { "verdict.*": "the mass-down breaker's verdict" },
      },
      tags: ["missing"],
      entry: "requestVerdict",
      on: {
        "verdict.granted": "expiring",
        "verdict.held": { target: "suspect", actions: { type: "rememberHold", params: ({ event }) => event } },
      },
    },
    expiring: {
      description: "Writing DOWN to the log, fenced by the session id. S2",
      meta: {
        waitingFor: "the commit of DOWN",
        wokenBy: { "down.*": "the log's answer", "session.resumed": "a Session call" },
      },
      tags: ["missing"],
      entry: ["forgetHold", { type: "declareDown", params: ({ context }) => ({ sessionId: context.sessionId }) }],
      ignore: ["session.forgotten"],
      on: {
        heartbeat: { actions: { type: "rememberLife", params: ({ event }) => event } },
        // Writes READY and the record again, after the DOWN that may already be in the log.
        "session.resumed": {
          target: "registering",
          actions: [
            { type: "rememberOpen", params: ({ event }) => event },
            { type: "rememberLife", params: ({ event }) => event },
          ],
        },
        "down.committed": "expired",
        "down.overtaken": "replaced",
        "down.unavailable": [
          { guard: "wasHeard", target: "serving", actions: "confirmReady" },
          { target: "suspect", actions: { type: "rememberHold", params: ({ event }) => event } },
        ],
      },
    },
    expired: {
      description: "DOWN is in the log; the agent must register again. S4",
      type: "final",
      entry: { type: "endSession", params: { end: "expired" } },
      output: { end: "expired" },
    },
    replaced: {
      description: "A newer registration of the node replaced this one; its streams end at once. S4",
      type: "final",
      entry: { type: "endSession", params: { end: "replaced" } },
      output: { end: "replaced" },
    },
    forgotten: {
      description: "Another manager declared the node DOWN while this one was cut off from the bus. S4",
      type: "final",
      entry: { type: "endSession", params: { end: "forgotten" } },
      output: { end: "forgotten" },
    },
    removed: {
      description: "The node was removed from the cluster. S4",
      type: "final",
      entry: { type: "endSession", params: { end: "removed" } },
      output: { end: "removed" },
    },
    stopped: {
      description:
        "This manager is stopping; the session stays in the log for the manager that the agent finds next. S4",
      type: "final",
      entry: { type: "endSession", params: { end: "stopped" } },
      output: { end: "stopped" },
    },
  },
});
