/**
 * Which data key the leader writes under. After the managers' keys were locked, or their unlock key was rotated, records are
 * to stand under a key that never lay on a disk under the old one: a new one is made, every living manager is given it, and
 * only then it is used.
 *
 *   resting ──▶ making ──▶ spreading ──▶ using ──▶ resting
 *      ▲          │ ▲
 *      └──────────┘ └── retrying
 *
 * J1: nothing is written under a key that a living manager has not got on its disk: whoever leads next can read all.
 * J2: where the leader dies on the way, the next one looks at what there is and goes on from there.
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";

const dataKeyTimes = {
  /** Until a key is made again that the disk did not take, in milliseconds. */
  retryMs: 5_000,
} as const;

export interface KeyFacts {
  readonly id: string;
  readonly generation: number;
  /** Fingerprint of the unlock key in force when it was made; empty: none was. */
  readonly lock: string;
}

export interface KeySituation {
  /** The newest key that this manager holds; null before the first. */
  readonly newest: KeyFacts | null;
  /** Id of the key that records are written under; empty before the first. */
  readonly currentId: string;
  /** Fingerprints: of the unlock key that the cluster has now, and of the one that locks this manager's own file. */
  readonly clusterLock: string;
  readonly ownLock: string;
  /** The living managers, this one included, and the ids of the keys that each has told to hold. */
  readonly managers: readonly { readonly id: string; readonly keyIds: readonly string[] }[];
}

export type KeyStep =
  | { readonly kind: "rest" }
  | { readonly kind: "make" }
  | { readonly kind: "spread"; readonly keyId: string; readonly waitingFor: readonly string[] }
  | { readonly kind: "use"; readonly keyId: string };

/** J1, J2. A cluster without unlock key goes on with the key it has: there is nothing that it should be safer from. */
export function keyStep({ newest, currentId, clusterLock, ownLock, managers }: KeySituation): KeyStep {
  // The first is made by the first append. One that is made goes to the disk, which must be locked as the cluster wants it.
  if (newest === null || clusterLock !== ownLock) return { kind: "rest" };
  if (clusterLock !== "" && newest.lock !== clusterLock) return { kind: "make" };
  if (newest.id === currentId) return { kind: "rest" };
  const waitingFor = managers.filter(({ keyIds }) => !keyIds.includes(newest.id)).map(({ id }) => id);
  return waitingFor.length > 0 ? { kind: "spread", keyId: newest.id, waitingFor } : { kind: "use", keyId: newest.id };
}

export type DataKeyEvent =
  /** What is to be done now, as the log and the disk have it. */
  | { readonly type: "keys.seen"; readonly step: KeyStep }
  | { readonly type: "key.made" }
  | { readonly type: "key.failed"; readonly reason: string };

interface DataKeyContext {
  /** The key that is being spread; empty otherwise. */
  readonly keyId: string;
  /** Managers that have not told yet that they hold it. */
  readonly waitingFor: readonly string[];
  /** Why the last one could not be made. */
  readonly reason: string;
}

export const dataKeyMachine = setup({
  types: { context: {} as DataKeyContext, events: {} as DataKeyEvent },
  actions: {
    /** Answered by `key.made` or `key.failed`. */
    makeKey: effect("makeKey"),
    useKey: effect<{ keyId: string }>("useKey"),
    /** Answered by `keys.seen`. */
    look: effect("look"),
    reportUnexpected: effect("reportUnexpected"),
    rememberSpreading: assign((_, { step }: { step: KeyStep }) =>
      step.kind === "spread" ? { keyId: step.keyId, waitingFor: step.waitingFor } : { keyId: "", waitingFor: [] },
    ),
    rememberReason: assign((_, { reason }: { reason: string }) => ({ reason })),
  },
  guards: { is: (_, { step, kind }: { step: KeyStep; kind: KeyStep["kind"] }) => step.kind === kind },
  delays: { retryDelay: dataKeyTimes.retryMs },
}).createMachine({
  id: "dataKey",
  context: { keyId: "", waitingFor: [], reason: "" },
  initial: "resting",
  options: { maxIterations: 1_000 },
  on: {
    "*": { actions: "reportUnexpected" },
    "keys.seen": [
      { guard: { type: "is", params: ({ event }) => ({ step: event.step, kind: "make" }) }, target: ".making" },
      {
        guard: { type: "is", params: ({ event }) => ({ step: event.step, kind: "spread" }) },
        target: ".spreading",
        actions: { type: "rememberSpreading", params: ({ event }) => ({ step: event.step }) },
      },
      {
        guard: { type: "is", params: ({ event }) => ({ step: event.step, kind: "use" }) },
        target: ".resting",
        actions: [
          { type: "rememberSpreading", params: ({ event }) => ({ step: event.step }) },
          { type: "useKey", params: ({ event }) => ({ keyId: event.step.kind === "use" ? event.step.keyId : "" }) },
        ],
      },
      {
        target: ".resting",
        actions: { type: "rememberSpreading", params: ({ event }) => ({ step: event.step }) },
      },
    ],
  },
  states: {
    resting: { description: "New records are written under the current key." },
    making: {
      description: "The managers' lock has changed: generating a new key and saving it to this manager's disk.",
      entry: "makeKey",
      on: {
        "keys.seen": {},
        "key.made": { target: "spreading", actions: [{ type: "rememberReason", params: { reason: "" } }, "look"] },
        "key.failed": {
          target: "retrying",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
        },
      },
    },
    spreading: {
      description: "Announcing the new key; waiting until every live manager has fetched and saved it. J1",
    },
    retrying: {
      description: "The disk refused the new key; retrying after a delay. Records stay under the old key.",
      on: { "keys.seen": {} },
      after: { retryDelay: { target: "resting", actions: "look" } },
    },
  },
});
