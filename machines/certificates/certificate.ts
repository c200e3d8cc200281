/**
 * One certificate on its way from a node's request to the node: what the leader's signer does for each node that waits.
 *
 *   sorting ──▶ pending ──▶ signing ──▶ issued
 *      │           ▲  ▲        │ ├────▶ refusing ──▶ failed
 *      ▼           │  └────────┘ ▼
 *   rotating ──────┘ ◀──────── waiting            (gone, from anywhere, when the node is removed)
 *
 * One such actor lives from the request until the certificate is in the log, on the leader only; the node's stored state
 * (PENDING, RENEW, ROTATE) is the truth from which a new leader starts them again.
 *
 * C1: a certificate is stored only for the request that it answers: one that was replaced meanwhile is signed anew.
 * C2: a request that cannot be signed ends as FAILED with its reason; anything else is tried again for as long as it takes.
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";

/** Milliseconds between tries while the log takes no writes: SwarmKit's signer looks again this often. */
const certificateRetryMs = 10_000;

export interface CertificateInput {
  readonly nodeId: string;
  /** The node was told to ask for a new certificate and has not yet. */
  readonly isRotating: boolean;
}

export interface CertificateContext extends CertificateInput {
  /** Why the last try did not lead to a certificate; empty before the first. */
  readonly reason: string;
}

export type CertificateEvent =
  /** The node sent a request, the first or a newer one. */
  | { readonly type: "csr.received" }
  | { readonly type: "signing.started" }
  /** The certificate is in the log. */
  | { readonly type: "certificate.stored" }
  /** Another write to the node came first: nothing was stored. */
  | { readonly type: "certificate.superseded" }
  | { readonly type: "csr.refused"; readonly reason: string }
  | { readonly type: "refusal.stored" }
  | { readonly type: "write.failed"; readonly reason: string }
  | { readonly type: "node.removed" };

export const certificateMachine = setup({
  types: {
    context: {} as CertificateContext,
    events: {} as CertificateEvent,
    input: {} as CertificateInput,
  },
  actions: {
    /** Puts the node into the next batch. */
    requestSignature: effect<{ nodeId: string }>("requestSignature"),
    /** Answered by `refusal.stored` or `write.failed`. */
    storeRefusal: effect<{ nodeId: string; reason: string }>("storeRefusal"),
    reportUnexpected: effect("reportUnexpected"),
    rememberReason: assign((_, { reason }: { reason: string }) => ({ reason })),
  },
  guards: {
    isRotating: ({ context }) => context.isRotating,
  },
  delays: { retryDelay: certificateRetryMs },
}).createMachine({
  id: "certificate",
  context: ({ input }) => ({ ...input, reason: "" }),
  initial: "sorting",
  options: { maxIterations: 1_000 },
  on: {
    "node.removed": ".gone",
    // Which request is signed is read from the store when signing starts.
    "csr.received": {},
    "*": { actions: "reportUnexpected" },
  },
  states: {
    sorting: {
      description: "Choosing the first state from the stored node.",
      always: [{ guard: "isRotating", target: "rotating" }, { target: "pending" }],
    },
    rotating: {
      description: "Waiting for the node to request a new certificate; the old one stays in use.",
      on: { "csr.received": "pending", "certificate.stored": "issued" },
    },
    pending: {
      description: "The request is in the log; waiting for the next batch.",
      entry: { type: "requestSignature", params: ({ context }) => ({ nodeId: context.nodeId }) },
      on: { "signing.started": "signing" },
    },
    signing: {
      description: "Signing and writing the certificate with the others of its batch. C1",
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
      description: "The write failed; retrying after a delay, or when the node asks again.",
      on: { "csr.received": "pending" },
      after: { retryDelay: "pending" },
    },
    issued: { type: "final", description: "The certificate is in the log, where the node's manager finds it." },
    failed: { type: "final", description: "The refusal is in the log; the node must send a new request." },
    gone: { type: "final", description: "The node was removed." },
  },
});
