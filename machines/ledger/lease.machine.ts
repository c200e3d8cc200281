/**
 * The leader lease of one manager: a key in a bucket whose keys expire a fixed time after their last write.
 *
 *   waiting { reading ⇄ resting } ──▶ taking ──▶ leading { term { resting ⇄ renewing, checking } } ──▶ lost ──▶ waiting
 *                                                          └──▶ releasing ──▶ released
 *
 * E1: this manager leads only until two thirds of the TTL have passed, by its own clock, since it sent the last write that is
 *     known to have succeeded. The bucket counts from a later moment, so this manager stops before another can begin; the
 *     last third allows for clocks that drift apart.
 * E2: a key is written only against what was read: absent, or its revision.
 * E4: timeouts follow the measured round trip, so that a lease can be kept over any link on which a write returns within a
 *     third of the TTL (`roundTripShareMax`). A slower link needs a longer lease.
 * E3: the lease only avoids contention. The log keeps an old leader from writing (ledger L2).
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";

type Attempt = { attempt: number };

/**
 * Longest round trip of a write with which a lease can be kept, as a share of the TTL: two round trips fit into two thirds.
 * E4
 */
export const roundTripShareMax = 1 / 3;
/** From this share of the TTL on, the leader logs a warning: with another slow answer it would lose the lease. */
export const roundTripShareWarned = 1 / 6;

export type LeaseEvent =
  | { readonly type: "lease.absent"; readonly attempt: number; readonly jitter: number }
  | {
      readonly type: "lease.held";
      readonly attempt: number;
      readonly managerId: string;
      readonly instance: string;
      readonly revision: number;
      readonly jitter: number;
    }
  | { readonly type: "lease.unreadable"; readonly attempt: number; readonly jitter: number }
  /** A write of this manager succeeded; `sentAt` and `at` are milliseconds of its own clock before and after. */
  | {
      readonly type: "lease.written";
      readonly attempt: number;
      readonly revision: number;
      readonly sentAt: number;
      readonly at: number;
    }
  | { readonly type: "lease.conflict"; readonly attempt: number }
  | { readonly type: "lease.unknown"; readonly attempt: number }
  | { readonly type: "lease.removed"; readonly attempt: number }
  /** The log contains a newer epoch, so another manager leads whatever the key says; or this manager steps down. */
  | { readonly type: "leader.deposed" }
  | { readonly type: "release.requested" };

interface LeaseInput {
  readonly ttlMs: number;
  readonly managerId: string;
  /** Unique per run of a manager. */
  readonly instance: string;
  /** Uniform in [0, 1): drawn anew for each read. */
  readonly jitter: number;
}

export interface LeaseContext extends LeaseInput {
  /** Number of the newest request to the bucket; answers to older ones are stale. */
  readonly attempt: number;
  /** Revision of the key as last read or written; 0: absent. The next write is conditional on it (E2). */
  readonly revision: number;
  /** When this manager must stop leading, by its clock, and the clock's time when that was set. */
  readonly deadline: number;
  readonly at: number;
  /** The bucket's recent round trip, in milliseconds: follows the longest one; 0 before the first answer. */
  readonly roundTripMs: number;
  /** False once this run has read the key: its own key found then is from an earlier run. */
  readonly isFirstLook: boolean;
}

export const leaseMachine = chart({
  types: { context: {} as LeaseContext, events: {} as LeaseEvent, input: {} as LeaseInput },
  effects: {
    /** Reads the key; answered by `lease.absent`, `lease.held` or `lease.unreadable`. */
    look: effect<Attempt>(),
    /** Writes the key against `revision`, 0 meaning absent; answered by `lease.written`, `lease.conflict` or `lease.unknown`. */
    write: effect<Attempt & { revision: number }>(),
    remove: effect<Attempt & { revision: number }>(),
    announceTaken: effect<{ revision: number }>(),
    announceEnded: effect(),
    announceReleased: effect(),
  },
  actions: {
    countAttempt: assign({ attempt: ({ context }) => context.attempt + 1 }),
    rememberJitter: assign((_, { jitter }: { jitter: number }) => ({ jitter, isFirstLook: false })),
    rememberRevision: assign((_, { revision }: { revision: number }) => ({ revision })),
    rememberWrite: assign(
      ({ context }, { revision, sentAt, at }: { revision: number; sentAt: number; at: number }) => ({
        revision,
        at,
        // Follows an increase at once, and a decrease over about ten writes.
        roundTripMs: Math.max(at - sentAt, context.roundTripMs * 0.8),
        deadline: sentAt + (context.ttlMs * 2) / 3,
      }),
    ),
  },
  guards: {
    isCurrent: ({ context }, { attempt }: Attempt) => attempt === context.attempt,
    /** The key belongs to this run (after a write with an unknown outcome), or to an earlier run, which has ended. */
    isOwnToTake: ({ context }, { attempt, managerId, instance }: Attempt & { managerId: string; instance: string }) =>
      attempt === context.attempt &&
      (instance === context.instance || (managerId === context.managerId && context.isFirstLook)),
    isOwn: ({ context }, { attempt, instance }: Attempt & { instance: string }) =>
      attempt === context.attempt && instance === context.instance,
    /** The answer arrived while the write still leaves time to lead. E1 */
    isTimely: ({ context }, { attempt, sentAt, at }: Attempt & { sentAt: number; at: number }) =>
      attempt === context.attempt && at < sentAt + (context.ttlMs * 2) / 3,
  },
  delays: {
    /** Six reads per TTL: a dead leader's expired key is noticed soon. Jittered, so that managers do not collide. */
    pollInterval: ({ context }) => (context.ttlMs / 6) * (0.75 + context.jitter / 2),
    /** Earlier on a slow link: the answer and a second attempt must fit before the deadline. E4 */
    renewInterval: ({ context: { at, deadline, roundTripMs, ttlMs } }) =>
      Math.max(0, Math.min(ttlMs / 3, deadline - at - 2 * roundTripMs - ttlMs / 9)),
    surrender: ({ context }) => Math.max(0, context.deadline - context.at),
    /**
     * Timeout of an answer before the request is repeated: on a fast link, three attempts fit between a renewal and the
     * deadline. E4
     */
    patience: ({ context: { roundTripMs, ttlMs } }) => Math.max(ttlMs / 9, 1.5 * roundTripMs),
    takePatience: ({ context }) => context.ttlMs / 2,
  },
  shows: {
    context: [
      "ttlMs",
      "managerId",
      "instance",
      "jitter",
      "attempt",
      "revision",
      "deadline",
      "at",
      "roundTripMs",
      "isFirstLook",
    ],
    events: ["attempt", "jitter", "managerId", "instance", "revision", "sentAt", "at"],
  },
}).createMachine({
  id: "lease",
  context: ({ input }) => ({
    ...input,
    attempt: 0,
    revision: 0,
    deadline: 0,
    at: 0,
    roundTripMs: 0,
    isFirstLook: true,
  }),
  initial: "waiting",
  ignore: ["leader.deposed"],
  on: {
    "release.requested": ".released",
  },
  states: {
    waiting: {
      description: "Another manager leads, or the bucket cannot be read; reading the key again at intervals.",
      initial: "reading",
      states: {
        reading: {
          description: "Reading the key.",
          meta: {
            waitingFor: "the bucket's answer",
            wokenBy: { "lease.*": "the answer", takePatience: "its time limit" },
          },
          entry: ["countAttempt", { type: "look", params: ({ context }) => ({ attempt: context.attempt }) }],
          on: {
            "lease.absent": {
              guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
              target: "#lease.taking",
              actions: [
                { type: "rememberJitter", params: ({ event }) => ({ jitter: event.jitter }) },
                { type: "rememberRevision", params: { revision: 0 } },
              ],
            },
            "lease.held": [
              {
                guard: {
                  type: "isOwnToTake",
                  params: ({ event }) => ({
                    attempt: event.attempt,
                    managerId: event.managerId,
                    instance: event.instance,
                  }),
                },
                target: "#lease.taking",
                actions: [
                  { type: "rememberJitter", params: ({ event }) => ({ jitter: event.jitter }) },
                  { type: "rememberRevision", params: ({ event }) => ({ revision: event.revision }) },
                ],
              },
              {
                guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
                target: "resting",
                actions: { type: "rememberJitter", params: ({ event }) => ({ jitter: event.jitter }) },
              },
            ],
            "lease.unreadable": {
              guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
              target: "resting",
            },
          },
          after: { takePatience: "resting" },
        },
        resting: {
          description: "Another manager holds the lease, or the bucket cannot be read.",
          meta: { waitingFor: "the next read of the key", wokenBy: { pollInterval: "the end of the interval" } },
          after: { pollInterval: "reading" },
        },
      },
    },
    taking: {
      description: "Writing the key, which was absent or already this manager's. E2",
      meta: {
        waitingFor: "the bucket, to accept this manager's key",
        wokenBy: { "lease.*": "the answer", takePatience: "its time limit" },
      },
      entry: [
        "countAttempt",
        { type: "write", params: ({ context }) => ({ attempt: context.attempt, revision: context.revision }) },
      ],
      on: {
        "lease.written": [
          {
            guard: {
              type: "isTimely",
              params: ({ event }) => ({ attempt: event.attempt, sentAt: event.sentAt, at: event.at }),
            },
            target: "leading",
            actions: {
              type: "rememberWrite",
              params: ({ event }) => ({ revision: event.revision, sentAt: event.sentAt, at: event.at }),
            },
          },
          { guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) }, target: "waiting" },
        ],
        "lease.conflict": {
          guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
          target: "lost",
        },
        "lease.unknown": {
          guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
          target: "lost",
        },
      },
      after: { takePatience: "waiting" },
    },
    leading: {
      description: "Holding the lease.",
      tags: "leading",
      initial: "term",
      entry: { type: "announceTaken", params: ({ context }) => ({ revision: context.revision }) },
      exit: "announceEnded",
      on: {
        "leader.deposed": "lost",
        "release.requested": "releasing",
      },
      states: {
        term: {
          description: "The lease as of the last successful write; it expires unless the next write succeeds. E1",
          initial: "resting",
          after: { surrender: "#lease.lost" },
          states: {
            resting: {
              description: "The key was renewed recently.",
              meta: {
                waitingFor: "the time of the next renewal",
                wokenBy: { renewInterval: "the end of the interval" },
              },
              after: { renewInterval: "renewing" },
            },
            renewing: {
              description: "Renewing the key.",
              meta: {
                waitingFor: "the bucket, to accept the renewal",
                wokenBy: { "lease.*": "the answer", patience: "its time limit", surrender: "the end of the lease" },
              },
              entry: [
                "countAttempt",
                { type: "write", params: ({ context }) => ({ attempt: context.attempt, revision: context.revision }) },
              ],
              on: {
                "lease.written": {
                  guard: {
                    type: "isTimely",
                    params: ({ event }) => ({ attempt: event.attempt, sentAt: event.sentAt, at: event.at }),
                  },
                  target: "#lease.leading.term",
                  reenter: true,
                  actions: {
                    type: "rememberWrite",
                    params: ({ event }) => ({ revision: event.revision, sentAt: event.sentAt, at: event.at }),
                  },
                },
                "lease.conflict": {
                  guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
                  target: "checking",
                },
                "lease.unknown": {
                  guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
                  target: "pausing",
                },
              },
              after: { patience: "checking" },
            },
            pausing: {
              description: "A write or read of the key failed.",
              meta: {
                waitingFor: "the next read of the key",
                wokenBy: { patience: "the end of the pause", surrender: "the end of the lease" },
              },
              after: { patience: "checking" },
            },
            checking: {
              description:
                "An earlier write may have succeeded: reading the key to learn which revision the next write must name. E2",
              meta: {
                waitingFor: "the bucket's answer",
                wokenBy: { "lease.*": "the answer", patience: "its time limit", surrender: "the end of the lease" },
              },
              entry: ["countAttempt", { type: "look", params: ({ context }) => ({ attempt: context.attempt }) }],
              on: {
                "lease.held": [
                  {
                    guard: {
                      type: "isOwn",
                      params: ({ event }) => ({ attempt: event.attempt, instance: event.instance }),
                    },
                    target: "renewing",
                    actions: { type: "rememberRevision", params: ({ event }) => ({ revision: event.revision }) },
                  },
                  {
                    guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
                    target: "#lease.lost",
                  },
                ],
                "lease.absent": {
                  guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
                  target: "#lease.lost",
                },
                "lease.unreadable": {
                  guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
                  target: "pausing",
                },
              },
              after: { patience: { target: "checking", reenter: true } },
            },
          },
        },
      },
    },
    lost: {
      description: "The lease was lost or missed.",
      meta: { waitingFor: "other managers, which may try first", wokenBy: { pollInterval: "the end of the interval" } },
      after: { pollInterval: "waiting" },
    },
    releasing: {
      description: "Releasing the lease, so that another manager need not wait for it to expire.",
      meta: {
        waitingFor: "the bucket, to remove the key",
        wokenBy: { "lease.removed": "the answer", takePatience: "its time limit" },
      },
      entry: [
        "countAttempt",
        { type: "remove", params: ({ context }) => ({ attempt: context.attempt, revision: context.revision }) },
      ],
      ignore: ["release.requested"],
      on: {
        "lease.removed": {
          guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
          target: "released",
        },
      },
      after: { takePatience: "released" },
    },
    released: {
      description: "No longer a candidate: this process is ending.",
      meta: { waitingFor: "the end of this process", wokenBy: {} },
      entry: "announceReleased",
      ignore: ["release.requested"],
    },
  },
});
