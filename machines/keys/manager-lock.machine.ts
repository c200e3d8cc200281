/**
 * The state of a manager's key file: whether this process can read it, and whether it is locked as the cluster requires.
 *
 *   opening ─▶ open: settled ─▶ unread ─▶ closing ─▶ relocking ─▶ settled
 *      │         ▲                                       └▶ retrying
 *      └▶ locked ◀─▶ unlocking            opening, unlocking ─▶ damaged
 *
 * U1: a locked manager does nothing but answer that it is locked.
 * U2: a wrong key changes nothing.
 * U4: the file is locked with a key only some time after the key was handed out: an operator who enables autolock or rotates
 *     the key, and then loses the manager, still has a key that opens the file.
 * U3: relocking rewrites the whole file, so it always opens with the previous or the next key, whatever dies when.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";
import type { LockState } from "./unlock-key.ts";

const managerLockTimes = {
  /** Milliseconds before a failed write of the file is retried. */
  retryMs: 5_000,
  /**
   * Milliseconds from handing out the key until the file is locked with it: the answer must reach the caller, whatever dies
   * then.
   */
  closeMs: 1_000,
} as const;

/** Events contain no keys: inspectors of a machine see its events. */
type ManagerLockEvent =
  | { readonly type: "file.opened" }
  | { readonly type: "file.locked" }
  | { readonly type: "file.broken"; readonly reason: string }
  | { readonly type: "unlock.requested" }
  | { readonly type: "unlock.refused" }
  | { readonly type: "lock.read"; readonly state: LockState }
  | { readonly type: "relock.done" }
  | { readonly type: "relock.failed"; readonly reason: string };

export const managerLockMachine = chart({
  types: {
    context: {} as { readonly reason: string; readonly wrongKeys: number },
    events: {} as ManagerLockEvent,
  },
  effects: {
    /** Answered by `file.opened`, `file.locked` or `file.broken`. */
    openFile: effect(),
    /** Tries the given key; answered by `file.opened`, `unlock.refused` or `file.broken`. */
    tryKey: effect(),
    /** Answered by `relock.done` or `relock.failed`. */
    relock: effect(),
    /** Answered by `lock.read` if the cluster's key is known. */
    look: effect(),
    announceOpen: effect(),
    announceLocked: effect(),
    announceBroken: effect<{ reason: string }>(),
  },
  actions: {
    countWrongKey: assign(({ context }) => ({ wrongKeys: context.wrongKeys + 1 })),
    rememberReason: assign((_, { reason }: { reason: string }) => ({ reason })),
  },
  guards: { is: (_, { state, kind }: { state: LockState; kind: LockState }) => state === kind },
  delays: { retryDelay: managerLockTimes.retryMs, closeDelay: managerLockTimes.closeMs },
  shows: { context: ["wrongKeys"], events: ["state"] },
}).createMachine({
  id: "managerLock",
  context: { reason: "", wrongKeys: 0 },
  initial: "opening",
  states: {
    opening: {
      description: "Reading the key file.",
      meta: { waitingFor: "the disk, to read the key file", wokenBy: { "file.*": "its content" } },
      entry: "openFile",
      on: {
        "file.opened": "open",
        "file.locked": "locked",
        "file.broken": {
          target: "damaged",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
        },
      },
    },
    locked: {
      description: "The key file is locked; nothing else runs. U1",
      meta: { waitingFor: "the unlock key", wokenBy: { "unlock.requested": "muster swarm unlock" } },
      entry: "announceLocked",
      on: { "unlock.requested": "unlocking" },
    },
    unlocking: {
      description: "Trying an unlock key. U2",
      meta: {
        waitingFor: "the outcome of the attempt",
        wokenBy: { "file.*": "an opened file", "unlock.refused": "a wrong key" },
      },
      entry: "tryKey",
      on: {
        "file.opened": "open",
        "unlock.refused": { target: "locked", actions: "countWrongKey" },
        "file.broken": {
          target: "damaged",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
        },
      },
    },
    damaged: {
      description: "The key file is not valid: restore it, or join the manager again.",
      meta: { waitingFor: "an operator to restore the key file, or to join the manager again", wokenBy: {} },
      entry: { type: "announceBroken", params: ({ context }) => ({ reason: context.reason }) },
    },
    open: {
      description: "The keys are in memory.",
      entry: "announceOpen",
      initial: "settled",
      states: {
        settled: {
          description: "The key file is locked as the cluster wants it, as far as is known.",
          meta: { waitingFor: "a change of the cluster's unlock key", wokenBy: { "lock.read": "that change" } },
          entry: "look",
          on: {
            "lock.read": [
              {
                guard: { type: "is", params: ({ event }) => ({ state: event.state, kind: "wrong" }) },
                target: "closing",
              },
              {
                guard: { type: "is", params: ({ event }) => ({ state: event.state, kind: "unread" }) },
                target: "unread",
              },
              {},
            ],
          },
        },
        unread: {
          description: "The cluster has a new unlock key that was not handed out yet: the key file stays unchanged. U4",
          meta: {
            waitingFor: "the cluster's unlock key to be handed out",
            wokenBy: { "lock.read": "the first reader of the key" },
          },
          on: {
            "lock.read": [
              {
                guard: { type: "is", params: ({ event }) => ({ state: event.state, kind: "wrong" }) },
                target: "closing",
              },
              {
                guard: { type: "is", params: ({ event }) => ({ state: event.state, kind: "right" }) },
                target: "settled",
              },
              {},
            ],
          },
        },
        closing: {
          description: "The key was handed out, or is no longer needed: about to rewrite the key file. U4",
          meta: {
            waitingFor: "the short pause before the key file is rewritten",
            wokenBy: { closeDelay: "the end of the pause", "lock.read": "another change" },
          },
          on: {
            "lock.read": [
              {
                guard: { type: "is", params: ({ event }) => ({ state: event.state, kind: "unread" }) },
                target: "unread",
              },
              {
                guard: { type: "is", params: ({ event }) => ({ state: event.state, kind: "right" }) },
                target: "settled",
              },
              {},
            ],
          },
          after: { closeDelay: "relocking" },
        },
        relocking: {
          description: "Writing the key file under the cluster's unlock key, or without one. U3",
          meta: { waitingFor: "the disk, to write the key file", wokenBy: { "relock.*": "the outcome of the write" } },
          entry: "relock",
          ignore: ["lock.read"],
          on: {
            "relock.done": { target: "settled", actions: { type: "rememberReason", params: { reason: "" } } },
            "relock.failed": {
              target: "retrying",
              actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
            },
          },
        },
        retrying: {
          description: "The disk refused the write and the key file is unchanged.",
          meta: {
            waitingFor: "the next attempt to write the key file",
            wokenBy: { retryDelay: "the end of the delay" },
          },
          ignore: ["lock.read"],
          after: { retryDelay: "settled" },
        },
      },
    },
  },
});
