/**
 * The rotation of the cluster's root certificate, driven by the leader. The cluster object holds the rotation
 * (`root_ca.root_rotation`), each node's description its progress (`tls_info`); this chart only paces the work.
 *
 *   idle ──▶ notifying ──▶ pausing ──▶ notifying …
 *     ▲          ╲          ╱
 *     │           ▼        ▼      (all nodes have certificates of the new root)
 *     └───────── switching ──▶ pausing, when the log took no write
 *
 * A rotation starts at any time, ends early when it is cancelled, and restarts when another root is wanted meanwhile.
 *
 * R1: the trusted root changes only when every node has reported a certificate from the new one: a node that trusts only the
 *     new root then accepts every other. A node that is down therefore blocks the rotation until it returns or is removed, as
 *     with SwarmKit.
 * R2: no more nodes are told to renew at a time than the manager can sign for at once.
 * R3: all progress is in the store: a new leader continues where the old one stopped.
 */
import { assign } from "xstate";
import { IssuanceStatus_State, type Node } from "../../proto/gen/messages.ts";
import { chart, effect } from "../chart.ts";
import { issuanceState } from "./issuance.ts";

export const rootRotationLimits = {
  /** Nodes that are told to renew at a time: SwarmKit's number. R2 */
  batchMax: 30,
  /** Milliseconds between two batches, and before a failed write is retried: SwarmKit's. */
  pauseMs: 3_000,
} as const;

/** Whether to tell the node to renew: not if it was already told or its request is waiting to be signed. */
export function shouldNotify(node: Node): boolean {
  const state = issuanceState(node);
  return (
    state !== IssuanceStatus_State.RENEW &&
    state !== IssuanceStatus_State.PENDING &&
    state !== IssuanceStatus_State.ROTATE
  );
}

export type RootRotationEvent =
  /** A rotation started, or its new root changed. */
  | { readonly type: "rotation.wanted" }
  /** The rotation was cancelled or completed. */
  | { readonly type: "rotation.over" }
  /** Every node has a certificate from the new root. */
  | { readonly type: "nodes.renewed" }
  /** The batch is committed; `notified` may be 0. */
  | { readonly type: "batch.notified"; readonly notified: number }
  | { readonly type: "write.failed"; readonly reason: string };

interface RootRotationContext {
  readonly isWanted: boolean;
  /** Why the last write failed; empty after a success. */
  readonly reason: string;
}

const remembersReason = {
  type: "rememberReason",
  params: ({ event }: { event: { reason: string } }) => ({ reason: event.reason }),
} as const;

export const rootRotationMachine = chart({
  types: {
    context: {} as RootRotationContext,
    events: {} as RootRotationEvent,
    /** `isWanted`: the cluster object contains a rotation. */
    input: {} as { readonly isWanted: boolean },
  },
  effects: {
    /** Tells a batch of nodes to renew; answered by `batch.notified`, `nodes.renewed` or `write.failed`. R2 */
    notifyNodes: effect(),
    /** Makes the new root the cluster's root; answered by `rotation.over`, `rotation.wanted` or `write.failed`. R1 */
    switchRoot: effect(),
  },
  actions: {
    rememberReason: assign((_, { reason }: { reason: string }) => ({ reason })),
    forgetReason: assign({ reason: "" }),
  },
  guards: { isWanted: ({ context }) => context.isWanted },
  delays: { pause: rootRotationLimits.pauseMs },
  shows: { context: ["isWanted"], events: ["notified"] },
}).createMachine({
  id: "rootRotation",
  context: ({ input }) => ({ isWanted: input.isWanted, reason: "" }),
  initial: "beginning",
  ignore: [
    // Late answers for an earlier root.
    "nodes.renewed",
    "batch.notified",
    "write.failed",
  ],
  on: {
    "rotation.wanted": { target: ".notifying", actions: "forgetReason" },
    "rotation.over": { target: ".idle", actions: "forgetReason" },
  },
  states: {
    beginning: {
      description: "Starting with a new leader, possibly in the middle of a rotation. R3",
      always: [{ guard: "isWanted", target: "notifying" }, { target: "idle" }],
    },
    idle: {
      description: "The cluster has one root.",
      meta: { waitingFor: "an operator to request another root", wokenBy: { "rotation.wanted": "muster ca rotate" } },
    },
    notifying: {
      description: "Telling a batch of nodes with certificates of an older root to renew them. R2",
      meta: {
        waitingFor: "the log, to request renewals of a batch of nodes",
        wokenBy: {
          "batch.notified": "the ledger's answer",
          "nodes.renewed": "the last renewal",
          "write.failed": "a failed write",
        },
      },
      entry: "notifyNodes",
      on: {
        "batch.notified": { target: "pausing", actions: "forgetReason" },
        "nodes.renewed": "switching",
        "write.failed": { target: "pausing", actions: remembersReason },
      },
    },
    pausing: {
      description: "The last batch is notified; the next one follows after a pause, the switch when all have renewed.",
      meta: {
        waitingFor: "nodes to renew their certificates",
        wokenBy: {
          "nodes.renewed": "the last renewal",
          pause: "the end of the pause, and the next batch",
          "rotation.over": "the end of the rotation",
        },
      },
      on: { "nodes.renewed": "switching" },
      after: { pause: "notifying" },
    },
    switching: {
      description: "All certificates are from the new root, which join tokens then name. R1",
      meta: {
        waitingFor: "the log, to make the new root the cluster's",
        wokenBy: { "rotation.over": "the ledger's answer", "write.failed": "a failed write" },
      },
      entry: "switchRoot",
      on: { "write.failed": { target: "pausing", actions: remembersReason } },
    },
  },
});
