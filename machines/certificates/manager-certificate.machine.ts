/**
 * A manager's own certificate: obtained at start, renewed before it expires, and replaced whenever another root signs.
 *
 *   obtaining ⇄ retrying
 *      │  ▲
 *      ▼  │  (due, told to, or another root)
 *     held
 *
 * M1: a certificate that could not be renewed stays in use; nothing that runs is disturbed.
 * M2: changes that happen while a certificate is being obtained are handled right afterwards.
 * M6: when the clock is set, the certificate is checked at once: it may have expired, or been issued while the clock was
 *     ahead.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";

export const managerCertificateTimes = {
  /** Milliseconds between attempts: the signer's retry interval. */
  retryMs: 10_000,
  /** The longest timer, in milliseconds: a certificate that is due later is checked again then. */
  lookMs: 86_400_000,
} as const;

export type ManagerCertificateEvent =
  /** In use and on disk; due for renewal in `renewInMs`. */
  | { readonly type: "certificate.obtained"; readonly renewInMs: number }
  | { readonly type: "certificate.failed"; readonly reason: string }
  /** Another root signs or is trusted, the node was told to renew, or the machine's clock was set. */
  | { readonly type: "certificate.doubted" };

interface ManagerCertificateContext {
  readonly renewInMs: number;
  readonly isDoubted: boolean;
  /** Why the last attempt failed; empty after a success. */
  readonly reason: string;
}

export const managerCertificateMachine = chart({
  types: { context: {} as ManagerCertificateContext, events: {} as ManagerCertificateEvent },
  effects: {
    /**
     * Keeps the current certificate if it is valid, else obtains another; answered by `certificate.obtained` or
     * `certificate.failed`.
     */
    obtainCertificate: effect(),
  },
  actions: {
    rememberDue: assign((_, { renewInMs }: { renewInMs: number }) => ({ renewInMs, reason: "" })),
    rememberReason: assign((_, { reason }: { reason: string }) => ({ reason })),
    doubt: assign({ isDoubted: true }),
    trust: assign({ isDoubted: false }),
  },
  guards: { isDoubted: ({ context }) => context.isDoubted },
  delays: {
    due: ({ context }) => Math.max(0, Math.min(context.renewInMs, managerCertificateTimes.lookMs)),
    retry: managerCertificateTimes.retryMs,
  },
  shows: { context: ["renewInMs", "isDoubted"], events: ["renewInMs"] },
}).createMachine({
  id: "managerCertificate",
  context: { renewInMs: 0, isDoubted: false, reason: "" },
  initial: "obtaining",
  states: {
    obtaining: {
      description: "Checking the certificate, and obtaining another if it is no longer valid. M1",
      meta: {
        waitingFor: "a valid certificate for this manager",
        wokenBy: { "certificate.*": "the answer of the disk, the leader or another manager" },
      },
      entry: ["trust", "obtainCertificate"],
      on: {
        "certificate.obtained": {
          target: "held",
          actions: { type: "rememberDue", params: ({ event }) => ({ renewInMs: event.renewInMs }) },
        },
        "certificate.failed": {
          target: "retrying",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
        },
        "certificate.doubted": { actions: "doubt" },
      },
    },
    held: {
      description: "The certificate is in use. M2",
      meta: {
        waitingFor: "the time of its renewal",
        wokenBy: {
          due: "the due time",
          "certificate.doubted": "a change of the cluster's root or of the manager's role",
        },
      },
      always: { guard: "isDoubted", target: "obtaining" },
      on: { "certificate.doubted": "obtaining" },
      after: { due: "obtaining" },
    },
    retrying: {
      description: "No certificate could be obtained; the old one, if any, stays in use. M1, M2",
      meta: {
        waitingFor: "the next attempt to obtain a certificate",
        wokenBy: {
          retry: "the end of the delay",
          "certificate.doubted": "a change of the cluster's root or of the manager's role",
        },
      },
      always: { guard: "isDoubted", target: "obtaining" },
      on: { "certificate.doubted": "obtaining" },
      after: { retry: "obtaining" },
    },
  },
});
