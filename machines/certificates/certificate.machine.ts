/**
 * One certificate, from a node's request to its commit: the work of the leader's signer for each waiting node.
 *
 *   sorting ──▶ pending ──▶ signing ──▶ issued
 *      │           ▲  ▲        │ ├────▶ refusing ──▶ failed
 *      ▼           │  └────────┘ ▼
 *   rotating ──────┘ ◀──────── waiting            (gone, from anywhere, when the node is removed)
 *
 * One actor lives from the request until the certificate is in the log, on the leader only. A new leader starts actors again
 * from the nodes' stored state (PENDING, RENEW, ROTATE).
 *
 * C1: a certificate is stored only for the request that it answers: if the request was replaced meanwhile, the new one is
 *     signed.
 * C2: a request that cannot be signed becomes FAILED with its reason; every other failure is retried until it succeeds.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";

/** Milliseconds between attempts while the log accepts no writes: SwarmKit's signer retries at this interval. */
const certificateRetryMs = 10_000;

interface CertificateInput {
  readonly nodeId: string;
  /** The node was told to request a new certificate and has not done so yet. */
  readonly isRotating: boolean;
}

interface CertificateContext extends CertificateInput {
  /** Why the last attempt failed; empty before the first. */
  readonly reason: string;
}

export type CertificateEvent =
  /** The node sent a first or newer request. */
  | { readonly type: "csr.received" }
  | { readonly type: "signing.started" }
  /** The certificate was committed. */
  | { readonly type: "certificate.stored" }
  /** Another write to the node came first; nothing was stored. */
  | { readonly type: "certificate.superseded" }
  | { readonly type: "csr.refused"; readonly reason: string }
  | { readonly type: "refusal.stored" }
  | { readonly type: "write.failed"; readonly reason: string }
  | { readonly type: "node.removed" };

export const certificateMachine = chart({
  types: {
    context: {} as CertificateContext,
    events: {} as CertificateEvent,
    input: {} as CertificateInput,
  },
  effects: {
    /** Adds the node to the next batch. */
    requestSignature: effect<{ nodeId: string }>(),
    /** Answered by `refusal.stored` or `write.failed`. */
    storeRefusal: effect<{ nodeId: string; reason: string }>(),
  },
  actions: {
    rememberReason: assign((_, { reason }: { reason: string }) => ({ reason })),
  },
  guards: {
    isRotating: ({ context }) => context.isRotating,
  },
  delays: { retryDelay: certificateRetryMs },
  shows: { context: ["nodeId", "isRotating"] },
}).createMachine({
  id: "certificate",
  context: ({ input }) => ({ ...input, reason: "" }),
  initial: "sorting",
  ignore: [
    // The request to sign is read from the store when signing starts.
    "csr.received",
  ],
  on: {
    "node.removed": ".gone",
  },
  states: {
    sorting: {
      description: "Choosing the first state from the stored node.",
      always: [{ guard: "isRotating", target: "rotating" }, { target: "pending" }],
    },
    rotating: {
      description: "The old certificate stays in use until the node requests another.",
      meta: {
        waitingFor: "the node to renew its certificate as requested",
        wokenBy: { "csr.received": "its request" },
      },
      on: { "csr.received": "pending", "certificate.stored": "issued" },
    },
    pending: {
      description: "The request is in the log.",
      meta: { waitingFor: "the next batch of certificates", wokenBy: { "signing.started": "the start of the batch" } },
      entry: { type: "requestSignature", params: ({ context }) => ({ nodeId: context.nodeId }) },
      on: { "signing.started": "signing" },
    },
    signing: {
      description: "Signing and writing the certificate with the others of its batch. C1",
      meta: {
        waitingFor: "the leader, or an external CA, to sign its certificate request",
        wokenBy: {
          "certificate.stored": "the certificate in the log",
          "csr.refused": "a refusal",
        },
      },
      on: {
        "certificate.stored": "issued",
        "certificate.superseded": "pending",
        "csr.refused": {
          target: "refusing",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
        },
        "write.failed": {
          target: "waiting",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
        },
      },
    },
    refusing: {
      description: "The request is malformed or not signed by its own key; writing the refusal. C2",
      meta: {
        waitingFor: "the log, to record the refusal",
        wokenBy: { "refusal.stored": "the ledger's answer", "write.failed": "a failed write" },
      },
      entry: {
        type: "storeRefusal",
        params: ({ context }) => ({ nodeId: context.nodeId, reason: context.reason }),
      },
      on: {
        "refusal.stored": "failed",
        "certificate.superseded": "pending",
        "write.failed": {
          target: "waiting",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
        },
      },
    },
    waiting: {
      description: "The write failed.",
      meta: {
        waitingFor: "the next attempt to sign the request",
        wokenBy: { retryDelay: "the end of the delay", "csr.received": "a new request of the node" },
      },
      on: { "csr.received": "pending" },
      after: { retryDelay: "pending" },
    },
    issued: { type: "final", description: "The certificate is in the log, where the node's manager finds it." },
    failed: { type: "final", description: "The refusal is in the log; the node must send a new request." },
    gone: { type: "final", description: "The node was removed." },
  },
});
