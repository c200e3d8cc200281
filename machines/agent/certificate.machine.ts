/**
 * How a node obtains its certificate and renews it.
 *
 *   joining:   fetching-root ⇄ waiting-for-root ──▶ requesting ⇄ waiting-to-request ──▶ polling ⇄ waiting-to-poll ──▶ installing
 *   holding:   valid ──▶ forced ──▶ requesting … ──▶ installing ──▶ valid
 *   failed     is final: an operator must act
 *
 * The private key is never in this machine: the actor holds it until it is on disk.
 *
 * C1: nothing received over an unverified connection is used before its digest equals the join token's.
 * C2: a certificate is announced (`installed`) only after it, its key and its root are on disk as one record.
 * C3: a node that has a certificate never gives up renewing it, and a failed renewal does not disturb what runs.
 * C4: a certificate is accepted only if it answers the newest request, byte for byte (the actor compares).
 * C5: a node that is told to renew sends a new request, even if an earlier one is in progress: its answer may come from
 *     the root that is being replaced.
 * C6: a request that an older one overtook in transit is sent again: the manager answers the one that arrived last, and
 *     would do so forever. (SwarmKit's agent waits forever.)
 * C7: a joining node requests one certificate, and waits for as long as that one cannot be used: each further request by
 *     token would create another node, which nobody uses. It requests a new one only when the cluster no longer knows its
 *     node.
 */
import { assign } from "xstate";
import { backoffMs } from "../../lib/backoff.ts";
import { chart, effect } from "../chart.ts";

/** Times in milliseconds and counts, from SwarmKit's agent (worker protocol §1.3, §2.3, §3.5). */
const certificateTimes = {
  joinAttemptsMax: 5,
  joinRetryMs: 2_000,
  /** Renewal attempts without a pause, before backing off. */
  renewalBurst: 5,
  renewalBackoff: { stepMs: 5_000, offsetMs: 5_000, msMax: 3_600_000 },
  pollBackoff: { stepMs: 1_000, offsetMs: 1_000, msMax: 30_000 },
  /** After this many failed polls, a lagging manager no longer explains a certificate for another request, or none. C6, C7 */
  surePollsMin: 2,
  /** Between the request to renew and the renewal. */
  forcedDelayMs: 500,
  /**
   * The clock is read at least this often: a timer cannot wait longer than 24 days, and does not notice a suspended
   * machine.
   */
  clockLookMs: 600_000,
} as const;

export type AgentCertificateEvent =
  | { readonly type: "root.fetched" }
  /** `definite`: a retry cannot help. */
  | { readonly type: "root.refused"; readonly reason: string; readonly definite: boolean }
  | { readonly type: "request.accepted"; readonly nodeId: string }
  | { readonly type: "request.refused"; readonly reason: string; readonly definite: boolean }
  | { readonly type: "certificate.issued" }
  /** The call's deadline passed: poll again over the same connection. */
  | { readonly type: "poll.expired" }
  /** Not issued yet, or the connection failed. */
  | { readonly type: "poll.failed"; readonly reason: string }
  /** The issued certificate answers a request other than the newest. */
  | { readonly type: "poll.superseded"; readonly reason: string }
  /** The manager does not know the node. */
  | { readonly type: "poll.unknown"; readonly reason: string }
  | {
      readonly type: "certificate.installed";
      readonly nodeId: string;
      readonly role: string;
      readonly renewAt: number;
      readonly expiresAt: number;
      readonly at: number;
    }
  /** `definite`: this certificate can never be used; otherwise it can once the clock or the disk is fixed. */
  | { readonly type: "certificate.refused"; readonly reason: string; readonly definite: boolean }
  | { readonly type: "renewal.forced" }
  | { readonly type: "role.wanted"; readonly role: string }
  | { readonly type: "clock.read"; readonly at: number }
  /** A session message contains a root other than the trusted one. */
  | { readonly type: "root.offered"; readonly rootPem: string };

interface AgentCertificateContext {
  readonly nodeId: string;
  /** OU of the current certificate; empty while joining. */
  readonly role: string;
  /** OU that the manager wants; empty if it never said. */
  readonly wantedRole: string;
  /** Told to renew while a request was in progress, which the previous root may answer. */
  readonly isForcedAgain: boolean;
  /** Failures in a row of the current operation. */
  readonly failures: number;
  readonly reason: string;
  /** Milliseconds since the epoch, like the two below. */
  readonly at: number;
  readonly renewAt: number;
  readonly expiresAt: number;
}

export type AgentCertificateInput =
  | { readonly kind: "joining" }
  | {
      readonly kind: "holding";
      readonly nodeId: string;
      readonly role: string;
      readonly at: number;
      readonly renewAt: number;
      readonly expiresAt: number;
    }
  | { readonly kind: "failed"; readonly reason: string };

type Refusal = { event: { reason: string } };
const reasonOf = ({ event }: Refusal): { reason: string } => ({ reason: event.reason });

export const agentCertificateMachine = chart({
  types: {
    context: {} as AgentCertificateContext,
    events: {} as AgentCertificateEvent,
    input: {} as AgentCertificateInput,
  },
  effects: {
    /** Answered by `root.fetched` or `root.refused`. C1 */
    fetchRoot: effect(),
    /** Creates a key and a certificate request; answered by `request.accepted` or `request.refused`. */
    requestCertificate: effect(),
    /** Answered by `certificate.issued`, `poll.expired` or `poll.failed`. C4 */
    pollStatus: effect<{ nodeId: string }>(),
    /** Checks the chain and writes to disk; answered by `certificate.installed` or `certificate.refused`. C2 */
    installCertificate: effect(),
    /** Closes the connection used for requesting and polling. */
    hangUp: effect(),
    /** Answered by `clock.read`. */
    readClock: effect(),
    considerRoot: effect<{ rootPem: string }>(),
    announceIdentity: effect(),
    announceFailure: effect<{ reason: string }>(),
  },
  actions: {
    countFailure: assign(({ context }, { reason }: { reason: string }) => ({ failures: context.failures + 1, reason })),
    forgetFailures: assign({ failures: 0, reason: "" }),
    rememberNode: assign((_, { nodeId }: { nodeId: string }) => ({ nodeId })),
    rememberCertificate: assign(
      (_, held: { nodeId: string; role: string; renewAt: number; expiresAt: number; at: number }) => ({
        ...held,
        failures: 0,
        reason: "",
      }),
    ),
    rememberTime: assign((_, { at }: { at: number }) => ({ at })),
    rememberForced: assign({ isForcedAgain: true }),
    forgetForced: assign({ isForcedAgain: false }),
    rememberWantedRole: assign((_, { role }: { role: string }) => ({ wantedRole: role })),
  },
  guards: {
    isJoining: ({ context }) => context.role === "",
    isHolding: ({ context }) => context.role !== "",
    startsFailed: ({ context }) => context.role === "" && context.reason !== "",
    isHopeless: ({ context }, { definite }: { definite: boolean }) =>
      context.role === "" && (definite || context.failures + 1 >= certificateTimes.joinAttemptsMax),
    mayTryAtOnce: ({ context }) => context.role !== "" && context.failures + 1 < certificateTimes.renewalBurst,
    isDue: ({ context }, { at }: { at: number }) => at >= context.renewAt,
    isSurelySuperseded: ({ context }) => context.role !== "" && context.failures >= certificateTimes.surePollsMin,
    isSurelyUnknown: ({ context }) => context.role === "" && context.failures >= certificateTimes.surePollsMin,
    failsJoin: ({ context }, { definite }: { definite: boolean }) => context.role === "" && definite,
    isForcedAgain: ({ context }) => context.isForcedAgain,
    lacksRole: ({ context }) => context.wantedRole !== "" && context.wantedRole !== context.role,
  },
  delays: {
    joinRetry: certificateTimes.joinRetryMs,
    forcedDelay: certificateTimes.forcedDelayMs,
    clockLook: ({ context }) => Math.min(certificateTimes.clockLookMs, Math.max(0, context.renewAt - context.at)),
  },
  drawnDelays: {
    renewalBackoff: ({ context }) =>
      backoffMs(certificateTimes.renewalBackoff, context.failures - certificateTimes.renewalBurst + 1),
    pollBackoff: ({ context }) => backoffMs(certificateTimes.pollBackoff, context.failures),
  },
  shows: {
    context: [
      "nodeId",
      "role",
      "wantedRole",
      "isForcedAgain",
      "failures",
      "reason.$same",
      "at",
      "renewAt",
      "expiresAt",
    ],
    events: ["nodeId", "role", "renewAt", "expiresAt", "at", "definite", "reason.$same"],
  },
}).createMachine({
  id: "agentCertificate",
  context: ({ input }) => ({
    nodeId: input.kind === "holding" ? input.nodeId : "",
    role: input.kind === "holding" ? input.role : "",
    wantedRole: "",
    isForcedAgain: false,
    failures: 0,
    reason: input.kind === "failed" ? input.reason : "",
    at: input.kind === "holding" ? input.at : 0,
    renewAt: input.kind === "holding" ? input.renewAt : 0,
    expiresAt: input.kind === "holding" ? input.expiresAt : 0,
  }),
  initial: "starting",
  ignore: ["clock.read"],
  on: {
    "root.offered": {
      guard: "isHolding",
      actions: { type: "considerRoot", params: ({ event }) => ({ rootPem: event.rootPem }) },
    },
    // A renewal is already in progress. C5
    "renewal.forced": { actions: "rememberForced" },
    "role.wanted": { actions: { type: "rememberWantedRole", params: ({ event }) => ({ role: event.role }) } },
  },
  states: {
    starting: {
      description: "Deciding from what the disk holds.",
      always: [
        { guard: "startsFailed", target: "failed" },
        { guard: "isJoining", target: "fetching-root" },
        { target: "valid" },
      ],
    },
    "fetching-root": {
      description: "Fetching the cluster's root certificate over an unauthenticated connection. C1",
      meta: {
        waitingFor: "a manager to send the cluster's root certificate",
        wokenBy: { "root.*": "the manager's answer" },
      },
      entry: "fetchRoot",
      on: {
        "root.fetched": { target: "requesting", actions: "forgetFailures" },
        "root.refused": [
          {
            guard: { type: "isHopeless", params: ({ event }) => ({ definite: event.definite }) },
            target: "failed",
            actions: { type: "countFailure", params: reasonOf },
          },
          { target: "waiting-for-root", actions: { type: "countFailure", params: reasonOf } },
        ],
      },
    },
    "waiting-for-root": {
      description: "The root certificate could not be fetched.",
      meta: {
        waitingFor: "the next attempt to fetch the root certificate",
        wokenBy: { joinRetry: "the end of the delay" },
      },
      after: { joinRetry: "fetching-root" },
    },
    requesting: {
      description:
        "Requesting a certificate with a new key: by join token the first time, by the old certificate later.",
      meta: {
        waitingFor: "a manager to accept the certificate request",
        wokenBy: { "request.*": "the manager's answer" },
      },
      entry: "requestCertificate",
      on: {
        "request.accepted": {
          target: "polling",
          actions: ["forgetFailures", { type: "rememberNode", params: ({ event }) => ({ nodeId: event.nodeId }) }],
        },
        "request.refused": [
          {
            guard: { type: "isHopeless", params: ({ event }) => ({ definite: event.definite }) },
            target: "failed",
            actions: { type: "countFailure", params: reasonOf },
          },
          { guard: "isJoining", target: "waiting-to-request", actions: { type: "countFailure", params: reasonOf } },
          {
            guard: "mayTryAtOnce",
            target: "requesting",
            reenter: true,
            actions: { type: "countFailure", params: reasonOf },
          },
          { target: "waiting-to-renew", actions: { type: "countFailure", params: reasonOf } },
        ],
      },
    },
    "waiting-to-request": {
      description: "The request for the first certificate failed.",
      meta: {
        waitingFor: "the next attempt to request the first certificate",
        wokenBy: { joinRetry: "the end of the delay" },
      },
      after: { joinRetry: "requesting" },
    },
    "waiting-to-renew": {
      description: "Renewal failed several times; the next delay is random and grows. C3",
      meta: {
        waitingFor: "the next attempt to renew the certificate",
        wokenBy: { renewalBackoff: "the end of the delay" },
      },
      entry: "hangUp",
      after: { renewalBackoff: "requesting" },
    },
    polling: {
      description: "The request is with the manager. C4",
      meta: {
        waitingFor: "the leader to issue the certificate",
        wokenBy: { "certificate.issued": "the certificate in the log", "poll.*": "the manager's answer without one" },
      },
      entry: { type: "pollStatus", params: ({ context }) => ({ nodeId: context.nodeId }) },
      on: {
        "certificate.issued": "installing",
        "poll.expired": { target: "polling", reenter: true },
        "poll.failed": { target: "waiting-to-poll", actions: { type: "countFailure", params: reasonOf } },
        "poll.superseded": [
          {
            guard: "isSurelySuperseded",
            target: "waiting-to-renew",
            actions: { type: "countFailure", params: reasonOf },
          },
          { target: "waiting-to-poll", actions: { type: "countFailure", params: reasonOf } },
        ],
        "poll.unknown": [
          { guard: "isSurelyUnknown", target: "waiting-to-request", actions: ["hangUp", "forgetFailures"] },
          { target: "waiting-to-poll", actions: { type: "countFailure", params: reasonOf } },
        ],
      },
    },
    "waiting-to-poll": {
      description: "The certificate is not issued or not usable yet. C7",
      meta: {
        waitingFor: "the next question whether the certificate is issued and usable",
        wokenBy: { pollBackoff: "the end of the delay" },
      },
      entry: "hangUp",
      after: { pollBackoff: "polling" },
    },
    installing: {
      description: "Verifying the chain; writing certificate, key and root to the disk. C2",
      meta: {
        waitingFor: "the disk to hold the new certificate",
        wokenBy: { "certificate.*": "the outcome of the write" },
      },
      entry: ["hangUp", "installCertificate"],
      on: {
        "certificate.installed": {
          target: "settling",
          actions: {
            type: "rememberCertificate",
            params: ({ event: { nodeId, role, renewAt, expiresAt, at } }) => ({ nodeId, role, renewAt, expiresAt, at }),
          },
        },
        "certificate.refused": [
          {
            guard: { type: "failsJoin", params: ({ event }) => ({ definite: event.definite }) },
            target: "failed",
            actions: { type: "countFailure", params: reasonOf },
          },
          { guard: "isJoining", target: "waiting-to-poll", actions: { type: "countFailure", params: reasonOf } },
          { target: "waiting-to-renew", actions: { type: "countFailure", params: reasonOf } },
        ],
      },
    },
    settling: {
      description: "Announcing the new certificate; requesting another one if the manager asked again meanwhile. C5",
      entry: "announceIdentity",
      always: [{ guard: "isForcedAgain", target: "forced" }, { target: "valid" }],
    },
    valid: {
      description: "The certificate is valid; renewal is not due yet.",
      meta: {
        waitingFor: "the next look at the clock, which tells whether renewal is due",
        wokenBy: {
          clockLook: "the end of the interval",
          "renewal.forced": "the manager's request to renew it",
          "role.wanted": "a change of the node's role",
        },
      },
      tags: ["identified"],
      always: { guard: "lacksRole", target: "forced" },
      after: { clockLook: { target: "checking" } },
      on: { "renewal.forced": "forced" },
    },
    checking: {
      description: "Checking the clock to see whether renewal is due.",
      meta: {
        waitingFor: "the time of day",
        wokenBy: {
          "clock.read": "the clock's answer",
          "renewal.forced": "the manager's request to renew the certificate",
        },
      },
      entry: "readClock",
      on: {
        "clock.read": [
          {
            guard: { type: "isDue", params: ({ event }) => ({ at: event.at }) },
            target: "requesting",
            actions: { type: "rememberTime", params: ({ event }) => ({ at: event.at }) },
          },
          { target: "valid", actions: { type: "rememberTime", params: ({ event }) => ({ at: event.at }) } },
        ],
        "renewal.forced": "forced",
      },
    },
    forced: {
      description: "The manager asked for a renewal.",
      meta: {
        waitingFor: "the short pause before the renewal that the manager asked for",
        wokenBy: { forcedDelay: "the end of the pause" },
      },
      ignore: ["renewal.forced"],
      after: { forcedDelay: { target: "requesting", actions: ["forgetFailures", "forgetForced"] } },
    },
    failed: {
      description: "The node cannot get a certificate; no further attempts are made.",
      type: "final",
      entry: ["hangUp", { type: "announceFailure", params: ({ context }) => ({ reason: context.reason }) }],
    },
  },
});
