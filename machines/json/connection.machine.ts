/**
 * One connection of the JSON API. While it is open, three things happen in parallel: the client logs in, it is pinged, and
 * its output is written.
 *
 *   handshake ──▶ open { session: anonymous ⇄ checking ──▶ authenticated;  link: quiet ⇄ pinged;  output: flowing ⇄ stuck }
 *        └────────────┴──▶ closing ──▶ closed
 *
 * JC1: before a successful login, only Admin requests are answered, whatever was read meanwhile.
 * JC2: a connection that does not log in, answer pings or read ends within a bounded time.
 * JC3: once the connection is closing, everything that its requests started is stopped, once.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";

/** Why a connection ends: WebSocket close codes (RFC 6455 §7.4.1). */
const CloseCode = { normal: 1000, goingAway: 1001, protocol: 1002, policy: 1008, tooBig: 1009 } as const;
type CloseCode = (typeof CloseCode)[keyof typeof CloseCode];

export type JsonConnectionEvent =
  /** The WebSocket is open. */
  | { readonly type: "socket.opened" }
  /** The socket closed, with or without a close frame. */
  | { readonly type: "socket.closed" }
  /** A login was received; `key` identifies it. */
  | { readonly type: "login.requested"; readonly key: number }
  | { readonly type: "login.accepted"; readonly key: number; readonly tag: string }
  | { readonly type: "login.refused"; readonly key: number }
  /** A request that requires a login was received. */
  | { readonly type: "request.received"; readonly key: number }
  /** A message was received that cannot be answered. */
  | { readonly type: "message.broken"; readonly reason: string }
  /** The user was removed or disabled, or the certificate used to log in was revoked. */
  | { readonly type: "identity.gone" }
  /** A pong. */
  | { readonly type: "peer.responded" }
  /** The client has not accepted everything that was written. */
  | { readonly type: "output.stuck" }
  /** The client accepted part of it. */
  | { readonly type: "output.moved" }
  /** The client accepted all of it. */
  | { readonly type: "output.empty" }
  /** More output is queued than this process may keep. */
  | { readonly type: "output.overflowed" }
  /** The manager is stopping. */
  | { readonly type: "server.stopping" };

interface JsonConnectionContext {
  readonly tag: string;
  /** Refused logins on this connection. */
  readonly failures: number;
  readonly code: CloseCode;
  readonly reason: string;
}

/** For TLS and the WebSocket upgrade; a slower peer is not a client. */
export const handshakeMs = 10_000;
/** Until a successful login (reference §10). */
export const anonymousMs = 30_000;
/** Between pings, and timeout of their answer (reference §1.3). */
export const pingMs = 60_000;
export const pongMs = 90_000;
/** Timeout of a write (reference §1.3). */
export const writeMs = 10_000;
/** For the client to answer the close frame. */
const goodbyeMs = 5_000;
/** After this many refused logins, the client must reconnect. */
export const failuresMax = 5;

export const jsonConnectionMachine = chart({
  types: {
    context: {} as JsonConnectionContext,
    events: {} as JsonConnectionEvent,
    tags: {} as "authenticated",
  },
  effects: {
    /** Answered by `login.accepted` or `login.refused`. */
    checkLogin: effect<{ readonly key: number }>(),
    /** Answers the login with success, and only then admits requests. JC1 */
    welcome: effect<{ readonly key: number }>(),
    /** Answers a login that is not possible now, with the reason. */
    refuseLogin: effect<{ readonly key: number; readonly reason: "checking" | "already" }>(),
    /** Answers `permission denied`. */
    refuseRequest: effect<{ readonly key: number }>(),
    ping: effect(),
    /** Stops everything that the connection's requests started. JC3 */
    release: effect(),
    /** Sends the close frame; answered by `socket.closed`. */
    sayGoodbye: effect<{ readonly code: CloseCode; readonly reason: string }>(),
    /** Closes the connection without waiting. */
    cutOff: effect(),
  },
  actions: {
    rememberTag: assign((_, { tag }: { readonly tag: string }) => ({ tag })),
    countFailure: assign(({ context }) => ({ failures: context.failures + 1 })),
    rememberWhy: assign((_, { code, reason }: { readonly code: CloseCode; readonly reason: string }) => ({
      code,
      reason,
    })),
  },
  guards: {
    hasGuessedEnough: ({ context }) => context.failures + 1 >= failuresMax,
  },
  delays: { handshakeMs, anonymousMs, pingMs, pongMs, writeMs, goodbyeMs },
  shows: { context: ["failures", "code"], events: ["key"] },
}).createMachine({
  id: "json-connection",
  context: { tag: "", failures: 0, code: CloseCode.normal, reason: "" },
  initial: "handshake",
  states: {
    handshake: {
      description: "TLS is up. JC2",
      meta: {
        waitingFor: "the WebSocket handshake",
        wokenBy: {
          "socket.opened": "the handshake",
          "socket.closed": "the end of the connection",
          handshakeMs: "its time limit",
        },
      },
      after: { handshakeMs: "cut" },
      on: { "socket.opened": "open", "socket.closed": "ended", "server.stopping": "cut" },
    },
    open: {
      description: "Open in both directions.",
      type: "parallel",
      on: {
        "socket.closed": "ended",
        "message.broken": {
          target: "closing",
          actions: {
            type: "rememberWhy",
            params: ({ event }) => ({ code: CloseCode.protocol, reason: event.reason }),
          },
        },
        "identity.gone": {
          target: "closing",
          actions: { type: "rememberWhy", params: { code: CloseCode.policy, reason: "the login is no longer valid" } },
        },
        "server.stopping": {
          target: "closing",
          actions: { type: "rememberWhy", params: { code: CloseCode.goingAway, reason: "the manager ends" } },
        },
        "output.overflowed": "cut",
      },
      states: {
        session: {
          description: "The identity of the client.",
          initial: "anonymous",
          states: {
            anonymous: {
              description: "The client is not identified yet. JC1, JC2",
              meta: {
                waitingFor: "a login",
                wokenBy: { "login.requested": "the login", anonymousMs: "its time limit" },
              },
              after: {
                anonymousMs: {
                  target: "#json-connection.closing",
                  actions: { type: "rememberWhy", params: { code: CloseCode.policy, reason: "no login in time" } },
                },
              },
              on: {
                "login.requested": "checking",
                "request.received": { actions: { type: "refuseRequest", params: ({ event }) => event } },
              },
            },
            checking: {
              description: "Verifying a login.",
              meta: { waitingFor: "the verdict on the login", wokenBy: { "login.*": "the verdict" } },
              entry: {
                type: "checkLogin",
                params: ({ event }) => ({ key: event.type === "login.requested" ? event.key : -1 }),
              },
              on: {
                "login.requested": {
                  actions: {
                    type: "refuseLogin",
                    params: ({ event }) => ({ key: event.key, reason: "checking" as const }),
                  },
                },
                "request.received": { actions: { type: "refuseRequest", params: ({ event }) => event } },
                "login.accepted": {
                  target: "authenticated",
                  actions: [
                    { type: "rememberTag", params: ({ event }) => event },
                    { type: "welcome", params: ({ event }) => event },
                  ],
                },
                "login.refused": [
                  {
                    guard: "hasGuessedEnough",
                    target: "#json-connection.closing",
                    actions: [
                      "countFailure",
                      { type: "rememberWhy", params: { code: CloseCode.policy, reason: "too many refused logins" } },
                    ],
                  },
                  { target: "anonymous", actions: "countFailure" },
                ],
              },
            },
            authenticated: {
              description: "Logged in; answering requests.",
              meta: { waitingFor: "the client's next request", wokenBy: { "request.received": "a request" } },
              tags: "authenticated",
              on: {
                "login.requested": {
                  actions: {
                    type: "refuseLogin",
                    params: ({ event }) => ({ key: event.key, reason: "already" as const }),
                  },
                },
                // Read before the login was answered, but processed only now: JC1.
                "request.received": { actions: { type: "refuseRequest", params: ({ event }) => event } },
              },
            },
          },
        },
        link: {
          description: "Whether the client still responds. JC2",
          initial: "quiet",
          states: {
            quiet: {
              description: "The client responded recently or has just connected.",
              meta: {
                waitingFor: "the time of the next ping",
                wokenBy: { pingMs: "the end of the interval" },
              },
              after: { pingMs: "pinged" },
              ignore: ["peer.responded"],
            },
            pinged: {
              description: "A ping is sent.",
              meta: {
                waitingFor: "the client's answer to a ping",
                wokenBy: { "peer.responded": "the answer, or any message", pongMs: "its time limit" },
              },
              entry: "ping",
              after: {
                pongMs: {
                  target: "#json-connection.cut",
                  actions: {
                    type: "rememberWhy",
                    params: { code: CloseCode.goingAway, reason: "no answer to a ping" },
                  },
                },
              },
              on: { "peer.responded": "quiet" },
            },
          },
        },
        output: {
          description: "Whether the client reads what is sent. JC2",
          initial: "flowing",
          states: {
            flowing: {
              description: "Nothing has been waiting for long.",
              meta: {
                waitingFor: "nothing: the client reads what is sent",
                wokenBy: { "output.stuck": "an unread message" },
              },
              ignore: ["output.moved", "output.empty"],
              on: { "output.stuck": "stuck" },
            },
            stuck: {
              description: "The client is not reading; nothing more is read from it until it does.",
              meta: {
                waitingFor: "the client to read what was sent",
                wokenBy: { "output.*": "progress of the output", writeMs: "its time limit" },
              },
              after: {
                writeMs: {
                  target: "#json-connection.cut",
                  actions: {
                    type: "rememberWhy",
                    params: { code: CloseCode.policy, reason: "the peer does not read" },
                  },
                },
              },
              ignore: ["output.stuck"],
              on: {
                "output.moved": { target: "stuck", reenter: true },
                "output.empty": "flowing",
              },
            },
          },
        },
      },
    },
    closing: {
      description: "Closing: the close frame is sent, and incoming messages are ignored. JC3",
      meta: {
        waitingFor: "the client to close the connection",
        wokenBy: {
          "socket.closed": "the end of the connection",
          "output.overflowed": "an overflowing output",
          goodbyeMs: "the time limit",
        },
      },
      entry: ["release", { type: "sayGoodbye", params: ({ context }) => context }],
      after: { goodbyeMs: "unanswered" },
      ignore: [
        "login.requested",
        "login.accepted",
        "login.refused",
        "request.received",
        "message.broken",
        "identity.gone",
        "peer.responded",
        "output.stuck",
        "output.moved",
        "output.empty",
        "server.stopping",
      ],
      on: {
        "socket.closed": "closed",
        "output.overflowed": "unanswered",
      },
    },
    unanswered: {
      description: "The client did not answer the close frame; cutting the connection.",
      entry: "cutOff",
      always: "closed",
    },
    ended: {
      description: "The client closed the connection first. JC3",
      entry: "release",
      always: "closed",
    },
    cut: {
      description: "The connection is lost; there is nobody to wait for. JC3",
      entry: ["release", "cutOff"],
      always: "closed",
    },
    closed: { description: "Closed.", type: "final" },
  },
});
