/**
 * The life of a manager's key file: whether this process can read it, and whether it is locked as the cluster wants it.
 *
 *   opening ─▶ open: settled ─▶ unread ─▶ closing ─▶ relocking ─▶ settled
 *      │         ▲                                       └▶ retrying
 *      └▶ locked ◀─▶ unlocking            opening, unlocking ─▶ damaged
 *
 * U1: nothing of a locked manager runs but the answer that it is locked.
 * U2: a wrong key changes nothing.
 * U4: the file is locked by a key only some time after somebody was given that key: who switches autolock on or rotates the
 *     key, and loses the manager on the way, still has what opens it.
 * U3: relocking writes the whole file anew, so it always opens with the key before or the key after, whatever dies when.
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";
import type { LockState } from "./unlock-key.ts";

const managerLockTimes = {
  /** Until the file is written again that the disk did not take, in milliseconds. */
  retryMs: 5_000,
  /** From the moment at which somebody was given the key until the file is locked by it, in milliseconds: the answer has to
   *  reach him, whatever dies then. */
  closeMs: 1_000,
} as const;

/** Keys are in no event: whoever inspects a machine sees its events. */
export type ManagerLockEvent =
  | { readonly type: "file.opened" }
  | { readonly type: "file.locked" }
  | { readonly type: "file.broken"; readonly reason: string }
  | { readonly type: "unlock.requested" }
  | { readonly type: "unlock.refused" }
  | { readonly type: "lock.looked"; readonly state: LockState }
  | { readonly type: "relock.done" }
  | { readonly type: "relock.failed"; readonly reason: string };

export const managerLockMachine = setup({
  types: {
    context: {} as { readonly reason: string; readonly wrongKeys: number },
    events: {} as ManagerLockEvent,
  },
  actions: {
    /** Answered by `file.opened`, `file.locked` or `file.broken`. */
    openFile: effect("openFile"),
    /** Tries the key that was given; answered by `file.opened`, `unlock.refused` or `file.broken`. */
    tryKey: effect("tryKey"),
    /** Answered by `relock.done` or `relock.failed`. */
    relock: effect("relock"),
    /** Answered by `lock.looked`, where the cluster's key is known. */
    look: effect("look"),
    announceOpen: effect("announceOpen"),
    announceLocked: effect("announceLocked"),
    announceBroken: effect<{ reason: string }>("announceBroken"),
    reportUnexpected: effect("reportUnexpected"),
    countWrongKey: assign(({ context }) => ({ wrongKeys: context.wrongKeys + 1 })),
    rememberReason: assign((_, { reason }: { reason: string }) => ({ reason })),
  },
  guards: { is: (_, { state, kind }: { state: LockState; kind: LockState }) => state === kind },
  delays: { retryDelay: managerLockTimes.retryMs, closeDelay: managerLockTimes.closeMs },
}).createMachine({
  id: "managerLock",
  context: { reason: "", wrongKeys: 0 },
  initial: "opening",
  options: { maxIterations: 1_000 },
  on: { "*": { actions: "reportUnexpected" } },
  states: {
    opening: {
      description: "Reading the key file.",
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
      description: "Waiting for the unlock key; nothing else runs. U1",
      entry: "announceLocked",
      on: { "unlock.requested": "unlocking" },
    },
    unlocking: {
      description: "Trying an unlock key. U2",
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
      entry: { type: "announceBroken", params: ({ context }) => ({ reason: context.reason }) },
    },
    open: {
      description: "The keys are in memory.",
      entry: "announceOpen",
      initial: "settled",
      states: {
        settled: {
          description: "The key file is locked as the cluster wants it, as far as is known.",
          entry: "look",
          on: {
            "lock.looked": [
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
          description:
            "The cluster has a new unlock key that nobody has been given yet: the key file stays unchanged. U4",
          on: {
            "lock.looked": [
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
          description:
            "Somebody has been given the key, or none is needed any more: about to write the key file again. U4",
          on: {
            "lock.looked": [
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
          entry: "relock",
          on: {
            "relock.done": { target: "settled", actions: { type: "rememberReason", params: { reason: "" } } },
            "relock.failed": {
              target: "retrying",
              actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
            },
            "lock.looked": {},
          },
        },
        retrying: {
          description: "The disk refused the write and the key file is unchanged; retrying after a delay.",
          on: { "lock.looked": {} },
          after: { retryDelay: "settled" },
        },
      },
    },
  },
});
