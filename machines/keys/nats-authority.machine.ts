/**
 * The CA of the managers' own nats-servers, of which every manager has the key: replaced by the leader when a manager that has had
 * the key is removed from the cluster, and when an operator rotates the root. All managers keep one numbered list of trusted CAs in
 * their key files (docs/adr/0051-managers-own-nats.md).
 *
 *   spreading ──▶ resting | missing | holding ◀─▶ changing ──▶ spreading …
 *      │ ▲
 *      ▼ │
 *   retrying
 *
 * C1: both CAs are trusted from before the first certificate of the new one until after the last of the old one: each step follows
 *     only when every live manager uses the list of the step before.
 * C2: once the list has one CA again, no nats-server keeps a connection that was opened with a certificate of another.
 * C3: all progress is in the managers' key files: a new leader asks them first, and continues with the newest list.
 * C4: a manager that is away does not block a rotation. It receives the list from another manager, over the cluster's own
 *     certificates, when it starts or is reached again.
 * C5: while a copy of the log is missing, the last step waits, for `holdMs` at most: it restarts each nats-server (C2), and with two of
 *     three left each restart would stop all writes.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";

const natsAuthorityTimes = {
  /** Milliseconds before a manager that did not answer, or a disk that refused the list, is tried again. */
  retryMs: 5_000,
  /** Milliseconds between two attempts to reach managers that are away. C4 */
  awayMs: 60_000,
  /** Milliseconds. A manager that joins in the place of another has its copy after some twenty seconds; a removed one can reach NATS
   *  until the step is taken. C5 */
  holdMs: 60_000,
  /** Milliseconds between two looks whether the copy is there. */
  holdLookMs: 2_000,
} as const;

export interface NatsAuthoritySituation {
  readonly revision: number;
  /** Ids of the trusted CAs, oldest first, and of the issuer. */
  readonly trusted: readonly string[];
  readonly issuer: string;
  /** Ids of the managers that have had the key of the newest one. */
  readonly holders: readonly string[];
  /** The operator's count of rotations: for which the newest was made, and the present one. */
  readonly forced: number;
  readonly wantedForced: number;
  /** Ids of all nodes of the cluster. */
  readonly nodes: readonly string[];
  /** `usesRevision`: whether it uses this list; false if it has not answered this leader. */
  readonly managers: readonly { readonly id: string; readonly alive: boolean; readonly usesRevision: boolean }[];
  readonly isCopyMissing: boolean;
  /** Milliseconds for which this leader has held the last step. */
  readonly heldMs: number;
}

export type NatsAuthorityStep =
  | { readonly kind: "rest"; readonly away: readonly string[] }
  | { readonly kind: "spread"; readonly waitingFor: readonly string[] }
  /** Records who has the key, and the count of rotations before the first change. */
  | { readonly kind: "record" }
  /** Creates a CA, trusted beside the present one. */
  | { readonly kind: "make" }
  /** Issues certificates from the newest. */
  | { readonly kind: "issue" }
  /** Waits for the missing copy of the log. */
  | { readonly kind: "hold" }
  /** Trusts the newest only. */
  | { readonly kind: "narrow" };

export function natsAuthorityStep(situation: NatsAuthoritySituation): NatsAuthorityStep {
  const { forced, heldMs, holders, isCopyMissing, issuer, managers, nodes, revision, trusted, wantedForced } =
    situation;
  const behind = managers.filter(({ usesRevision }) => !usesRevision);
  const waitingFor = behind.filter(({ alive }) => alive).map(({ id }) => id);
  if (waitingFor.length > 0) return { kind: "spread", waitingFor }; // C1, C3
  if (managers.some(({ id }) => !holders.includes(id))) return { kind: "record" };
  if (trusted.length > 1) {
    if (issuer !== trusted.at(-1)) return { kind: "issue" };
    return { kind: isCopyMissing && heldMs < natsAuthorityTimes.holdMs ? "hold" : "narrow" }; // C5
  }
  const isKnownOutside = holders.some((id) => !nodes.includes(id));
  // Before the first change, the count that the present CA was made for is not known.
  if (isKnownOutside || (revision > 0 && wantedForced > forced)) return { kind: "make" };
  return { kind: "rest", away: behind.map(({ id }) => id) };
}

export type NatsAuthorityEvent =
  /** Managers, nodes, the cluster or the list have changed. */
  | { readonly type: "facts.changed"; readonly step: NatsAuthorityStep }
  /** All managers were asked; those that are away may have failed. */
  | { readonly type: "list.spread"; readonly step: NatsAuthorityStep }
  | { readonly type: "step.taken"; readonly step: NatsAuthorityStep }
  | { readonly type: "step.failed"; readonly reason: string };

interface NatsAuthorityContext {
  readonly step: NatsAuthorityStep;
  /** Why the last step failed; empty after a success. */
  readonly reason: string;
}

const decides = {
  target: "deciding",
  actions: {
    type: "rememberStep",
    params: ({ event }: { event: { step: NatsAuthorityStep } }) => ({ step: event.step }),
  },
} as const;

const fails = {
  target: "retrying",
  actions: { type: "rememberReason", params: ({ event }: { event: { reason: string } }) => ({ reason: event.reason }) },
} as const;

export const natsAuthorityMachine = chart({
  types: { context: {} as NatsAuthorityContext, events: {} as NatsAuthorityEvent },
  effects: {
    /** Has every manager use the list; answered by `list.spread` or `step.failed`. */
    spread: effect(),
    /** Changes the own list as the step says; answered by `step.taken` or `step.failed`. */
    change: effect<{ step: NatsAuthorityStep }>(),
  },
  actions: {
    rememberStep: assign((_, { step }: { step: NatsAuthorityStep }) => ({ step, reason: "" })),
    rememberReason: assign((_, { reason }: { reason: string }) => ({ reason })),
  },
  guards: {
    isAtRest: ({ context }) => context.step.kind === "rest",
    isSpreading: ({ context }) => context.step.kind === "spread",
    isHeld: ({ context }) => context.step.kind === "hold",
    isSomeoneAway: ({ context }) => context.step.kind === "rest" && context.step.away.length > 0,
  },
  delays: {
    retryDelay: natsAuthorityTimes.retryMs,
    awayDelay: natsAuthorityTimes.awayMs,
    holdDelay: natsAuthorityTimes.holdLookMs,
  },
  shows: { context: ["step"], events: ["step"] },
}).createMachine({
  id: "natsAuthority",
  context: { step: { kind: "spread", waitingFor: [] }, reason: "" },
  initial: "spreading",
  ignore: ["facts.changed"],
  states: {
    deciding: {
      description: "Choosing the next step from the list, the managers and the operator's wishes.",
      always: [
        { guard: "isSomeoneAway", target: "missing" },
        { guard: "isAtRest", target: "resting" },
        { guard: "isSpreading", target: "spreading" },
        { guard: "isHeld", target: "holding" },
        { target: "changing" },
      ],
    },
    resting: {
      description: "One CA is trusted in NATS, and only managers of the cluster have its key.",
      meta: {
        waitingFor: "the removal of a manager, or an operator to rotate the root",
        wokenBy: { "facts.changed": "that change" },
      },
      on: { "facts.changed": decides },
    },
    missing: {
      description: "All live managers use the list; another one is away and will receive it when it can be reached. C4",
      meta: {
        waitingFor: "managers that are away",
        wokenBy: { "facts.changed": "their return or removal", awayDelay: "the next attempt to reach them" },
      },
      on: { "facts.changed": decides },
      after: { awayDelay: "spreading" },
    },
    holding: {
      description:
        "A copy of the log is missing: to end the trust in the former CA, each nats-server restarts, which would stop all writes. C5",
      meta: {
        waitingFor: "the missing copy of the log, for a minute at most",
        wokenBy: { "facts.changed": "a manager that joins or leaves", holdDelay: "the next look" },
      },
      on: { "facts.changed": decides },
      after: { holdDelay: "spreading" },
    },
    spreading: {
      description: "Every manager is asked to use the list of CAs, one after the other. C1",
      meta: {
        waitingFor: "the managers' answers",
        wokenBy: { "list.spread": "the last answer", "step.failed": "a live manager that does not answer" },
      },
      entry: "spread",
      on: { "list.spread": decides, "step.failed": fails },
    },
    changing: {
      description: "Saving the next list of CAs to this manager's disk. C3",
      meta: {
        waitingFor: "this manager's disk",
        wokenBy: { "step.taken": "the saved list", "step.failed": "a disk that refused it" },
      },
      entry: { type: "change", params: ({ context }) => ({ step: context.step }) },
      on: { "step.taken": decides, "step.failed": fails },
    },
    retrying: {
      description: "A live manager does not use the list yet, or the list could not be saved.",
      meta: { waitingFor: "the next attempt", wokenBy: { retryDelay: "the end of the delay" } },
      after: { retryDelay: "spreading" },
    },
  },
});
