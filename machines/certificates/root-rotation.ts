/**
 * The way from one root certificate to the next, as the leader drives it. The cluster object says that there is one to go
 * (`root_ca.root_rotation`), each node's description says how far it is (`tls_info`); this chart only paces the work.
 *
 *   idle ──▶ telling ──▶ pausing ──▶ telling …
 *     ▲         ╲          ╱
 *     │          ▼        ▼      (all nodes have certificates of the new root)
 *     └──────── switching ──▶ pausing, when the log took no write
 *
 * Begins at any time, ends early when the rotation is called off, and begins anew when another root is wanted meanwhile.
 *
 * R1: the root that nodes trust changes only when each node has said that its certificate is of the new one: whoever
 *     trusts only the new root still accepts everybody. A node that is down therefore holds the rotation up until it
 *     returns or is removed, as with SwarmKit.
 * R2: no more nodes are told at a time than the manager can sign for at once.
 * R3: nothing is remembered here that the store does not hold: a new leader goes on where the old one was.
 */
import { assign, setup } from "xstate";
import { IssuanceStatus_State, type Node } from "../../proto/gen/messages.ts";
import { effect } from "../effect.ts";
import { issuanceState } from "./issuance.ts";

export const rootRotationLimits = {
  /** Nodes that are told at a time: SwarmKit's. R2 */
  batchMax: 30,
  /** Milliseconds between two batches, and before a failed write is tried again: SwarmKit's. */
  pauseMs: 3_000,
} as const;

/** Whether the node should be told: one that has been, or whose request waits to be signed, needs no reminder. */
export function shouldBeTold(node: Node): boolean {
  const state = issuanceState(node);
  return (
    state !== IssuanceStatus_State.RENEW &&
    state !== IssuanceStatus_State.PENDING &&
    state !== IssuanceStatus_State.ROTATE
  );
}

export type RootRotationEvent =
  /** Another root is to follow than before, or one at all. */
  | { readonly type: "rotation.wanted" }
  /** None is to follow any more: called off, or done. */
  | { readonly type: "rotation.over" }
  /** Each node has a certificate of the new root. */
  | { readonly type: "nodes.renewed" }
  /** The batch is in the log; `told` may be 0. */
  | { readonly type: "batch.told"; readonly told: number }
  | { readonly type: "write.failed"; readonly reason: string };

export interface RootRotationContext {
  readonly isWanted: boolean;
  /** Why the last write failed; empty when it did not. */
  readonly reason: string;
}

const remembersReason = {
  type: "rememberReason",
  params: ({ event }: { event: { reason: string } }) => ({ reason: event.reason }),
} as const;

export const rootRotationMachine = setup({
  types: {
    context: {} as RootRotationContext,
    events: {} as RootRotationEvent,
    /** `isWanted`: the cluster object says that a rotation is under way. */
    input: {} as { readonly isWanted: boolean },
  },
  actions: {
    /** Tells a batch of nodes to renew; answered by `batch.told`, `nodes.renewed` or `write.failed`. R2 */
    tellNodes: effect("tellNodes"),
    /** Makes the new root the cluster's; answered by `rotation.over`, `rotation.wanted` or `write.failed`. R1 */
    switchRoot: effect("switchRoot"),
    reportUnexpected: effect("reportUnexpected"),
    rememberReason: assign((_, { reason }: { reason: string }) => ({ reason })),
    forgetReason: assign({ reason: "" }),
  },
  guards: { isWanted: ({ context }) => context.isWanted },
  delays: { pause: rootRotationLimits.pauseMs },
}).createMachine({
  id: "rootRotation",
  context: ({ input }) => ({ isWanted: input.isWanted, reason: "" }),
  initial: "beginning",
  options: { maxIterations: 1_000 },
  on: {
    "rotation.wanted": { target: ".telling", actions: "forgetReason" },
    "rotation.over": { target: ".idle", actions: "forgetReason" },
    // Outdated answers to what was asked for an earlier root.
    "nodes.renewed": {},
    "batch.told": {},
    "write.failed": {},
    "*": { actions: "reportUnexpected" },
  },
  states: {
    beginning: {
      description: "Starting with a new leader, possibly in the middle of a rotation. R3",
      always: [{ guard: "isWanted", target: "telling" }, { target: "idle" }],
    },
    idle: { description: "The cluster has one root and no rotation is requested." },
    telling: {
      description: "Telling a batch of nodes with certificates of an older root to renew them. R2",
      entry: "tellNodes",
      on: {
        "batch.told": { target: "pausing", actions: "forgetReason" },
        "nodes.renewed": "switching",
        "write.failed": { target: "pausing", actions: remembersReason },
      },
    },
    pausing: {
      description:
        "Waiting for nodes to renew; the next batch follows after a pause, the switch when all have renewed.",
      on: { "nodes.renewed": "switching" },
      after: { pause: "telling" },
    },
    switching: {
      description:
        "All certificates are from the new root: making it the cluster's root, which join tokens then name. R1",
      entry: "switchRoot",
      on: { "write.failed": { target: "pausing", actions: remembersReason } },
    },
  },
});
