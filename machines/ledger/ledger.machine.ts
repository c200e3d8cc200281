/**
 * The ledger: the only writer of the log while this manager leads.
 *
 *   following ──lease.taken──▶ taking ──▶ barrier ⇄ rejoining ──▶ leading { idle ⇄ appending ⇄ behind | doubting … }
 *
 * L1: at most one append is in flight, and it expects the log to end where this replica ends.
 * L2: leading begins once an empty transaction of the new epoch, the barrier, is in the log: from then on nothing that an
 *     older leader sent can be accepted, and this replica has seen everything that was.
 * L3: an append with an unknown outcome is settled before anything else is decided: another record is appended at the same
 *     position until one of the two is known to be in the log.
 * L4: an epoch above its own in the log ends leading at once.
 *
 * The epoch is drawn only after catching up. It is the revision at which the lease was taken, which only increases while the
 * bucket exists. A recreated bucket counts from 1 again, below what the log contains; then the epoch is the log's last epoch
 * plus one. Two managers that draw the same number meet at the barrier, where one append wins; the other finds an epoch not
 * below its own and steps down.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";

export type LedgerEvent =
  | { readonly type: "lease.taken"; readonly revision: number }
  | { readonly type: "lease.ended" }
  | { readonly type: "work.arrived" }
  /**
   * The replica contains everything that the log contained when `catchUp` was requested. `epoch`: of its last record;
   * `isOwn`: this manager wrote it.
   */
  | { readonly type: "log.reached"; readonly attempt: number; readonly epoch: number; readonly isOwn: boolean }
  /** The reader delivered a record that the ledger had not applied itself. */
  | { readonly type: "log.advanced"; readonly epoch: number }
  | { readonly type: "append.appended"; readonly attempt: number; readonly sequence: number }
  /** Nothing had to be written, and the log still ends where the replica does. */
  | { readonly type: "append.needless"; readonly attempt: number }
  | { readonly type: "append.conflict"; readonly attempt: number }
  | { readonly type: "append.unknown"; readonly attempt: number }
  | {
      readonly type: "append.refused";
      readonly attempt: number;
      readonly code: AppendRefusal;
      readonly reason: string;
    };

/** `logFull`: out of space, so nothing has happened; `logUnavailable`: another reason. */
export type AppendRefusal = "logFull" | "logUnavailable";

interface LedgerContext {
  /** The lease's revision; 0 while following. */
  readonly revision: number;
  /** Drawn once the end of the log is reached; 0 before. */
  readonly epoch: number;
  /** Number of the newest append or catch-up; answers to older ones are stale. */
  readonly attempt: number;
}

/** Milliseconds before an append that failed because of the log is retried: a few round trips, not a busy loop. */
const appendRetryMs = 100;

type Attempt = { attempt: number };

export const ledgerMachine = chart({
  types: { context: {} as LedgerContext, events: {} as LedgerEvent },
  effects: {
    /** Updates the replica to the current end of the log; answered by `log.reached`. */
    catchUp: effect<Attempt>(),
    appendBarrier: effect<Attempt & { epoch: number }>(),
    /** Decides the waiting proposals and appends the result. */
    appendBatch: effect<Attempt & { epoch: number }>(),
    /** Appends an empty record at the position of the uncertain one. */
    appendProbe: effect<Attempt & { epoch: number }>(),
    /** Applies the appended record to this replica, unless the reader was faster. */
    applyAppended: effect<{ sequence: number }>(),
    /** Answers the proposals of the batch. */
    answerBatch: effect(),
    /** Answers that the log accepts no writes; proposers may retry. */
    failBatch: effect<{ code: AppendRefusal; reason: string }>(),
    /** Returns the batch to the front of the queue, to be decided again. */
    returnBatch: effect(),
    /** Answers the uncertain batch if the reader found its record; otherwise returns it to the queue. */
    settleDoubt: effect(),
    /** Sends `work.arrived` if proposals are waiting. */
    lookForWork: effect(),
    announceLeading: effect<{ epoch: number }>(),
    /** Answers everyone that this is not the leader, and an unsettled batch according to what the reader found of it. */
    abandonWork: effect(),
    announceDeposed: effect<{ epoch: number }>(),
  },
  actions: {
    rememberLease: assign((_, { revision }: { revision: number }) => ({ revision })),
    drawEpoch: assign(({ context }, { last }: { last: number }) => ({ epoch: Math.max(context.revision, last + 1) })),
    countAttempt: assign({ attempt: ({ context }) => context.attempt + 1 }),
    forgetEpoch: assign({ revision: 0, epoch: 0 }),
  },
  guards: {
    isCurrent: ({ context }, { attempt }: Attempt) => attempt === context.attempt,
    isOwnBarrier: ({ context }, { attempt, epoch, isOwn }: Attempt & { epoch: number; isOwn: boolean }) =>
      attempt === context.attempt && isOwn && epoch === context.epoch,
    isOutbid: ({ context }, { attempt, epoch }: Attempt & { epoch: number }) =>
      attempt === context.attempt && epoch >= context.epoch,
    isDeposed: ({ context }, { attempt, epoch }: Attempt & { epoch: number }) =>
      attempt === context.attempt && epoch > context.epoch,
    isNewerEpoch: ({ context }, { epoch }: { epoch: number }) => epoch > context.epoch,
  },
  delays: { appendRetry: appendRetryMs },
  shows: {
    context: ["revision", "epoch", "attempt"],
    events: ["revision", "attempt", "epoch", "isOwn", "sequence", "code"],
  },
}).createMachine({
  id: "ledger",
  context: { revision: 0, epoch: 0, attempt: 0 },
  initial: "following",
  ignore: ["log.advanced", "work.arrived"],
  states: {
    following: {
      description: "Not the leader.",
      meta: { waitingFor: "the lease", wokenBy: { "lease.taken": "the lease" } },
      entry: "forgetEpoch",
      ignore: ["lease.ended"],
      on: {
        "lease.taken": {
          target: "taking",
          actions: { type: "rememberLease", params: ({ event }) => ({ revision: event.revision }) },
        },
      },
    },
    taking: {
      description: "Holds the lease; reading the log to its end and choosing the epoch.",
      meta: {
        waitingFor: "this replica to reach the end of the log",
        wokenBy: { "log.reached": "the last record", "lease.ended": "the loss of the lease" },
      },
      entry: ["countAttempt", { type: "catchUp", params: ({ context }) => ({ attempt: context.attempt }) }],
      on: {
        "log.reached": {
          guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
          target: "barrier",
          actions: { type: "drawEpoch", params: ({ event }) => ({ last: event.epoch }) },
        },
        "lease.ended": "following",
      },
    },
    barrier: {
      description: "Appending the first record of the epoch. L2",
      meta: {
        waitingFor: "the log, to accept the first record of the epoch",
        wokenBy: { "append.*": "the log's answer", "lease.ended": "the loss of the lease" },
      },
      entry: [
        "countAttempt",
        { type: "appendBarrier", params: ({ context }) => ({ attempt: context.attempt, epoch: context.epoch }) },
      ],
      on: {
        "append.appended": {
          guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
          target: "leading",
          actions: { type: "applyAppended", params: ({ event }) => ({ sequence: event.sequence }) },
        },
        "append.conflict": {
          guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
          target: "rejoining",
        },
        "append.unknown": {
          guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
          target: "pausing",
        },
        "append.refused": {
          guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
          target: "pausing",
        },
        "lease.ended": "following",
      },
    },
    pausing: {
      description: "The first record may or may not be in the log.",
      meta: {
        waitingFor: "the next look whether the first record is in the log",
        wokenBy: { appendRetry: "the end of the delay", "lease.ended": "the loss of the lease" },
      },
      after: { appendRetry: "rejoining" },
      on: { "lease.ended": "following" },
    },
    rejoining: {
      description:
        "The log has more records than expected: reading on to find this epoch's first record, a leader of an equal or newer epoch, or the position for another attempt.",
      meta: {
        waitingFor: "this replica to reach the end of the log",
        wokenBy: { "log.reached": "the last record", "lease.ended": "the loss of the lease" },
      },
      entry: ["countAttempt", { type: "catchUp", params: ({ context }) => ({ attempt: context.attempt }) }],
      on: {
        "log.reached": [
          {
            guard: {
              type: "isOwnBarrier",
              params: ({ event }) => ({ attempt: event.attempt, epoch: event.epoch, isOwn: event.isOwn }),
            },
            target: "leading",
          },
          {
            guard: { type: "isOutbid", params: ({ event }) => ({ attempt: event.attempt, epoch: event.epoch }) },
            target: "following",
            actions: { type: "announceDeposed", params: ({ event }) => ({ epoch: event.epoch }) },
          },
          { guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) }, target: "barrier" },
        ],
        "lease.ended": "following",
      },
    },
    leading: {
      description: "Leading; accepting proposals.",
      tags: "leading",
      initial: "idle",
      entry: { type: "announceLeading", params: ({ context }) => ({ epoch: context.epoch }) },
      exit: "abandonWork",
      on: {
        "lease.ended": "following",
        "log.advanced": {
          guard: { type: "isNewerEpoch", params: ({ event }) => ({ epoch: event.epoch }) },
          target: "following",
          actions: { type: "announceDeposed", params: ({ event }) => ({ epoch: event.epoch }) },
        },
      },
      states: {
        idle: {
          description: "No append is in flight.",
          meta: {
            waitingFor: "a proposal",
            wokenBy: { "work.arrived": "a proposal", "lease.ended": "the loss of the lease" },
          },
          entry: "lookForWork",
          on: { "work.arrived": "appending" },
        },
        appending: {
          description: "Appending one transaction with everything that was waiting. L1",
          meta: {
            waitingFor: "the log, to accept one transaction",
            wokenBy: { "append.*": "the log's answer", "lease.ended": "the loss of the lease" },
          },
          entry: [
            "countAttempt",
            { type: "appendBatch", params: ({ context }) => ({ attempt: context.attempt, epoch: context.epoch }) },
          ],
          on: {
            "append.appended": {
              guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
              target: "idle",
              actions: [
                { type: "applyAppended", params: ({ event }) => ({ sequence: event.sequence }) },
                "answerBatch",
              ],
            },
            "append.needless": {
              guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
              target: "idle",
              actions: "answerBatch",
            },
            "append.conflict": {
              guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
              target: "behind",
              actions: "returnBatch",
            },
            "append.unknown": {
              guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
              target: "doubting",
            },
            "append.refused": {
              guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
              target: "resting",
              actions: { type: "failBatch", params: ({ event }) => ({ code: event.code, reason: event.reason }) },
            },
          },
        },
        resting: {
          description: "The log refused the append.",
          meta: {
            waitingFor: "the next attempt to append",
            wokenBy: { appendRetry: "the end of the delay", "lease.ended": "the loss of the lease" },
          },
          after: { appendRetry: "idle" },
        },
        behind: {
          description:
            "The log has a record that this replica lacks: reading it, then deciding the batch again or stepping down.",
          meta: {
            waitingFor: "this replica to read the record that it lacks",
            wokenBy: { "log.reached": "that record", "lease.ended": "the loss of the lease" },
          },
          entry: ["countAttempt", { type: "catchUp", params: ({ context }) => ({ attempt: context.attempt }) }],
          on: {
            "log.reached": [
              {
                guard: { type: "isDeposed", params: ({ event }) => ({ attempt: event.attempt, epoch: event.epoch }) },
                target: "#ledger.following",
                actions: { type: "announceDeposed", params: ({ event }) => ({ epoch: event.epoch }) },
              },
              { guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) }, target: "idle" },
            ],
          },
        },
        doubting: {
          description: "It is unknown whether the batch is in the log; the next append will tell. L3",
          initial: "probing",
          states: {
            probing: {
              description: "Appending an empty record at the position of the batch.",
              meta: {
                waitingFor: "the log's answer to an empty record",
                wokenBy: { "append.*": "the answer", "lease.ended": "the loss of the lease" },
              },
              entry: [
                "countAttempt",
                { type: "appendProbe", params: ({ context }) => ({ attempt: context.attempt, epoch: context.epoch }) },
              ],
              on: {
                "append.appended": {
                  guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
                  target: "#ledger.leading.idle",
                  actions: [
                    { type: "applyAppended", params: ({ event }) => ({ sequence: event.sequence }) },
                    "settleDoubt",
                  ],
                },
                "append.conflict": {
                  guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
                  target: "reading",
                },
                "append.unknown": {
                  guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
                  target: "waiting",
                },
                "append.refused": {
                  guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
                  target: "waiting",
                },
              },
            },
            waiting: {
              description: "The log does not answer.",
              meta: {
                waitingFor: "the next probe",
                wokenBy: { appendRetry: "the end of the delay", "lease.ended": "the loss of the lease" },
              },
              after: { appendRetry: "probing" },
            },
            reading: {
              description: "The position is taken; reading on to see by which record.",
              meta: {
                waitingFor: "this replica to read the record at that position",
                wokenBy: { "log.reached": "that record", "lease.ended": "the loss of the lease" },
              },
              entry: ["countAttempt", { type: "catchUp", params: ({ context }) => ({ attempt: context.attempt }) }],
              on: {
                "log.reached": [
                  {
                    guard: {
                      type: "isDeposed",
                      params: ({ event }) => ({ attempt: event.attempt, epoch: event.epoch }),
                    },
                    target: "#ledger.following",
                    actions: { type: "announceDeposed", params: ({ event }) => ({ epoch: event.epoch }) },
                  },
                  {
                    guard: { type: "isCurrent", params: ({ event }) => ({ attempt: event.attempt }) },
                    target: "#ledger.leading.idle",
                    actions: "settleDoubt",
                  },
                ],
              },
            },
          },
        },
      },
    },
  },
});
