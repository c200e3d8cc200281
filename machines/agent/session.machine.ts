/**
 * The session client: keeps this node registered with one of the managers.
 *
 *   idle ──▶ engaged { connecting ──▶ registering ──▶ serving } ──▶ backing-off ──▶ engaged …    (back to idle from anywhere)
 *
 * While serving, three concerns run in parallel: heartbeats, the assignments stream and the node's description. The first
 * failure of any of them ends the whole session, which is then rebuilt with its old session id.
 *
 * A1: a session is serving only after its first message, which must arrive within `registrationTimeout`.
 * A2: an assignments message is applied only if it continues the previous one; otherwise the session is rebuilt.
 * A3: the connection is closed (`endSession`) whenever a session ends, before another one is dialled.
 * A4: the session id survives every rebuild; a manager that does not know it issues a new one.
 */
import { assign } from "xstate";
import type { AssignmentsMessage, SessionMessage } from "../../proto/gen/messages.ts";
import { backoffMs } from "../../lib/backoff.ts";
import { chart, effect } from "../chart.ts";

/** Times in milliseconds, from SwarmKit's agent (worker protocol §5.2). */
const agentSessionTimes = {
  registrationTimeoutMs: 5_000,
  /** How often the description is recomputed. */
  descriptionIntervalMs: 20_000,
  /** 100, 300, 700 … */
  backoff: { stepMs: 200, offsetMs: -100, msMax: 8_000 },
  /** Used until a manager sends a period. */
  heartbeatPeriodMs: 5_000,
  /** Not SwarmKit's, which trusts its managers: a shorter period would be a busy loop. */
  heartbeatPeriodMsMin: 100,
} as const;

export type AgentSessionEvent =
  | { readonly type: "session.wanted" }
  | { readonly type: "session.unwanted" }
  | { readonly type: "manager.reached"; readonly addr: string }
  | { readonly type: "session.message"; readonly message: SessionMessage }
  | { readonly type: "session.failed"; readonly reason: string }
  /** `tookMs`: from the heartbeat to its answer. */
  | { readonly type: "heartbeat.answered"; readonly periodMs: number; readonly tookMs: number }
  | {
      readonly type: "assignments.received";
      readonly message: AssignmentsMessage;
      readonly complete: boolean;
      readonly appliesTo: string;
      readonly resultsIn: string;
    }
  | { readonly type: "description.same" }
  | { readonly type: "description.changed" }
  /** The certificate or root changed: recompute the description now. */
  | { readonly type: "identity.changed" };

/** News of its session for the agent's owner. */
export type SessionNews =
  | { readonly kind: "idle" }
  | { readonly kind: "connecting"; readonly reason: string }
  | { readonly kind: "serving"; readonly manager: string; readonly sessionId: string }
  | { readonly kind: "backing-off"; readonly reason: string };

interface AgentSessionContext {
  /** Empty until the first registration of this run of the agent. */
  readonly sessionId: string;
  /** The manager that is dialled or that serves the node; empty if none. */
  readonly addr: string;
  readonly heartbeatPeriodMs: number;
  /** From the last heartbeat to its answer. */
  readonly heartbeatTookMs: number;
  /** Sessions that failed in a row. */
  readonly failures: number;
  /** `results_in` of the newest assignments message of this stream; empty before the first. */
  readonly assignments: string;
  /** Why the last session ended. */
  readonly reason: string;
}

export const agentSessionMachine = chart({
  types: { context: {} as AgentSessionContext, events: {} as AgentSessionEvent },
  effects: {
    /** Chooses a manager and dials it; answered by `manager.reached` or `session.failed`. */
    connect: effect(),
    openSession: effect<{ sessionId: string }>(),
    /** Passes on managers, node, root and keys of a session message. */
    applySessionMessage: effect<{ message: SessionMessage }>(),
    openStreams: effect<{ sessionId: string }>(),
    sendHeartbeat: effect<{ sessionId: string }>(),
    applyAssignments: effect<{ message: AssignmentsMessage }>(),
    /** Answered by `description.same` or `description.changed`. */
    compareDescription: effect(),
    endSession: effect(),
    announce: effect<SessionNews>(),
  },
  actions: {
    rememberManager: assign((_, { addr }: { addr: string }) => ({ addr })),
    rememberSession: assign((_, { sessionId }: { sessionId: string }) => ({ sessionId })),
    rememberPeriod: assign((_, { periodMs }: { periodMs: number }) => ({
      heartbeatPeriodMs: Math.max(agentSessionTimes.heartbeatPeriodMsMin, periodMs),
    })),
    rememberTook: assign((_, { tookMs }: { tookMs: number }) => ({ heartbeatTookMs: tookMs })),
    rememberAssignments: assign((_, { resultsIn }: { resultsIn: string }) => ({ assignments: resultsIn })),
    rememberReason: assign((_, { reason }: { reason: string }) => ({ reason })),
    forgetStream: assign({ assignments: "" }),
    forgetFailures: assign({ failures: 0, reason: "" }),
    countFailure: assign({ addr: "", failures: ({ context }) => context.failures + 1 }),
  },
  guards: {
    continuesAssignments: ({ context }, { complete, appliesTo }: { complete: boolean; appliesTo: string }) =>
      complete || (context.assignments !== "" && appliesTo === context.assignments),
    isPeriod: (_, { periodMs }: { periodMs: number }) => periodMs > 0,
  },
  delays: {
    registrationTimeout: agentSessionTimes.registrationTimeoutMs,
    descriptionInterval: agentSessionTimes.descriptionIntervalMs,
    // From heartbeat to heartbeat, so that they arrive when the manager wants them, whatever the distance: with those of other nodes.
    heartbeatPeriod: ({ context }) =>
      Math.max(agentSessionTimes.heartbeatPeriodMsMin, context.heartbeatPeriodMs - context.heartbeatTookMs),
  },
  drawnDelays: { backoff: ({ context }) => backoffMs(agentSessionTimes.backoff, context.failures) },
  shows: {
    context: ["sessionId.$same", "addr", "heartbeatPeriodMs", "heartbeatTookMs", "failures", "assignments"],
    events: ["addr", "periodMs", "tookMs", "complete", "appliesTo", "resultsIn"],
  },
}).createMachine({
  id: "agentSession",
  context: {
    sessionId: "",
    addr: "",
    heartbeatPeriodMs: agentSessionTimes.heartbeatPeriodMs,
    heartbeatTookMs: 0,
    failures: 0,
    assignments: "",
    reason: "",
  },
  initial: "idle",
  ignore: ["identity.changed"],
  on: {
    "session.unwanted": { target: ".idle" },
  },
  states: {
    idle: {
      description: "No session is wanted: the node has no certificate yet, or the agent is stopping.",
      meta: {
        waitingFor: "a certificate, without which the agent opens no session",
        wokenBy: { "session.wanted": "the node's certificate" },
      },
      entry: { type: "announce", params: { kind: "idle" } },
      on: { "session.wanted": "engaged" },
    },
    engaged: {
      description: "Connected, or connecting, to one manager. A3",
      initial: "connecting",
      exit: ["endSession", "forgetStream"],
      on: {
        "session.failed": {
          target: "backing-off",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
        },
      },
      states: {
        connecting: {
          description: "Connecting to a known manager, chosen at random by weight.",
          meta: {
            waitingFor: "a connection to the chosen manager",
            wokenBy: {
              "manager.reached": "the connection",
              "session.failed": "its failure",
              registrationTimeout: "the time limit of the registration",
            },
          },
          entry: [
            { type: "announce", params: ({ context }) => ({ kind: "connecting", reason: context.reason }) },
            "connect",
          ],
          on: {
            "manager.reached": {
              target: "registering",
              actions: { type: "rememberManager", params: ({ event }) => ({ addr: event.addr }) },
            },
          },
          after: {
            registrationTimeout: {
              target: "#agentSession.backing-off",
              actions: { type: "rememberReason", params: { reason: "no manager answered in time" } },
            },
          },
        },
        registering: {
          description: "The Session call is open; its first message creates the session. A1, A4",
          meta: {
            waitingFor: "the manager's first session message",
            wokenBy: {
              "session.message": "that message",
              "session.failed": "the end of the call",
              registrationTimeout: "the time limit of the registration",
            },
          },
          entry: { type: "openSession", params: ({ context }) => ({ sessionId: context.sessionId }) },
          on: {
            "session.message": {
              target: "serving",
              actions: [
                { type: "rememberSession", params: ({ event }) => ({ sessionId: event.message.sessionId }) },
                "forgetFailures",
                { type: "applySessionMessage", params: ({ event }) => ({ message: event.message }) },
              ],
            },
          },
          after: {
            registrationTimeout: {
              target: "#agentSession.backing-off",
              actions: { type: "rememberReason", params: { reason: "session initiation timed out" } },
            },
          },
        },
        serving: {
          description: "Registered. Every stream must stay open; if one ends, even with OK, the session has failed.",
          type: "parallel",
          tags: ["serving"],
          entry: [
            {
              type: "announce",
              params: ({ context }) => ({ kind: "serving", manager: context.addr, sessionId: context.sessionId }),
            },
            { type: "openStreams", params: ({ context }) => ({ sessionId: context.sessionId }) },
          ],
          on: {
            "session.message": {
              actions: [
                { type: "rememberSession", params: ({ event }) => ({ sessionId: event.message.sessionId }) },
                { type: "applySessionMessage", params: ({ event }) => ({ message: event.message }) },
              ],
            },
          },
          states: {
            heartbeat: {
              description: "Sending heartbeats at the period that each answer sets.",
              initial: "sending",
              states: {
                sending: {
                  description: "A heartbeat is in flight; its deadline is the call's.",
                  meta: {
                    waitingFor: "the manager's answer to a heartbeat",
                    wokenBy: { "heartbeat.answered": "the answer", "session.failed": "the deadline of the call" },
                  },
                  entry: { type: "sendHeartbeat", params: ({ context }) => ({ sessionId: context.sessionId }) },
                  on: {
                    "heartbeat.answered": [
                      {
                        guard: { type: "isPeriod", params: ({ event }) => ({ periodMs: event.periodMs }) },
                        target: "waiting",
                        actions: [
                          { type: "rememberPeriod", params: ({ event }) => ({ periodMs: event.periodMs }) },
                          { type: "rememberTook", params: ({ event }) => ({ tookMs: event.tookMs }) },
                        ],
                      },
                      // A manager that sends no period gets heartbeats at the previous one, not in a busy loop.
                      {
                        target: "waiting",
                        actions: { type: "rememberTook", params: ({ event }) => ({ tookMs: event.tookMs }) },
                      },
                    ],
                  },
                },
                waiting: {
                  description: "The manager has answered the last heartbeat.",
                  meta: {
                    waitingFor: "the time of the next heartbeat",
                    wokenBy: { heartbeatPeriod: "the end of the period" },
                  },
                  after: { heartbeatPeriod: "sending" },
                },
              },
            },
            assignments: {
              description: "Following the assignments for this node. A2",
              initial: "awaiting",
              states: {
                awaiting: {
                  description: "The stream is open; nothing has arrived yet.",
                  meta: {
                    waitingFor: "the complete set of assignments",
                    wokenBy: { "assignments.received": "the complete set", "session.failed": "the end of the stream" },
                  },
                },
                following: {
                  description: "The complete set has arrived.",
                  meta: {
                    waitingFor: "a change of the node's assignments",
                    wokenBy: { "assignments.received": "a change", "session.failed": "the end of the stream" },
                  },
                },
              },
              on: {
                "assignments.received": [
                  {
                    guard: {
                      type: "continuesAssignments",
                      params: ({ event }) => ({ complete: event.complete, appliesTo: event.appliesTo }),
                    },
                    target: ".following",
                    actions: [
                      { type: "rememberAssignments", params: ({ event }) => ({ resultsIn: event.resultsIn }) },
                      { type: "applyAssignments", params: ({ event }) => ({ message: event.message }) },
                    ],
                  },
                  {
                    target: "#agentSession.backing-off",
                    actions: {
                      type: "rememberReason",
                      params: { reason: "an assignments message does not continue the one before it" },
                    },
                  },
                ],
              },
            },
            description: {
              description: "Watching for changes of the node's description.",
              initial: "settled",
              states: {
                settled: {
                  description: "The manager has the node's latest description.",
                  meta: {
                    waitingFor: "the next look for changes of the node's description",
                    wokenBy: {
                      descriptionInterval: "the end of the interval",
                      "identity.changed": "a changed identity of the node",
                    },
                  },
                  after: { descriptionInterval: "comparing" },
                  on: { "identity.changed": "comparing" },
                },
                comparing: {
                  description: "Computing the description again.",
                  meta: {
                    waitingFor: "the node's current description",
                    wokenBy: { "description.*": "the computed description" },
                  },
                  entry: "compareDescription",
                  on: {
                    "description.same": "settled",
                    // Not a failure: registers again immediately, with the same session id.
                    "description.changed": { target: "#agentSession.engaged", reenter: true },
                    "identity.changed": { target: "comparing", reenter: true },
                  },
                },
              },
            },
          },
        },
      },
    },
    "backing-off": {
      description:
        "The last attempt failed; the bound of the delay grows with each failure until a registration succeeds.",
      meta: { waitingFor: "the next attempt to reach a manager", wokenBy: { backoff: "the end of the delay" } },
      entry: [
        "countFailure",
        { type: "announce", params: ({ context }) => ({ kind: "backing-off", reason: context.reason }) },
      ],
      after: { backoff: "engaged" },
    },
  },
});
