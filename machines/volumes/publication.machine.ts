/**
 * One cluster volume on one node: the leader has the storage plugin attach and detach it.
 *
 *   looking ──▶ blocked | publishing ──▶ recording ──▶ looking ──▶ published
 *   published ──▶ leaving ──▶ unpublishing ──▶ erasing ──▶ gone          every failure: resting, then looking again
 *
 * The scheduler writes which nodes get the volume, the node's agent that it has unmounted it; this chart makes the two calls
 * between. The next step is always derived from the store (`machines/volumes/csi/stages.ts`), never remembered.
 *
 * U1: the store says PUBLISHED only after the plugin has confirmed it, and the entry is removed only after the plugin has
 *     detached the volume.
 * U2: a failed call may have had an effect, so a volume whose publishing failed is unpublished, too.
 * U3: a single-node volume is published to a second node only after the first has released it. G3
 * U4: one call at a time.
 */
import { assign, setup } from "xstate";
import { retryMs, type Failing } from "./csi/calls.ts";
import type { PublicationStage } from "./csi/stages.ts";
import { effect } from "../effect.ts";

export type PublicationEvent =
  /** Sent whenever the volume or the node changes. */
  | { readonly type: "volume.changed"; readonly stage: PublicationStage }
  | { readonly type: "call.answered" }
  | { readonly type: "call.failed"; readonly reason: string; readonly failing: Failing }
  /** The write is in the store; `stage` is the new stage. */
  | { readonly type: "write.settled"; readonly stage: PublicationStage }
  | { readonly type: "write.failed"; readonly reason: string; readonly failing: "unclear" }
  /** The plugin is reachable (again), or has changed. */
  | { readonly type: "plugin.served" };

export interface PublicationContext {
  readonly volumeId: string;
  readonly nodeId: string;
  readonly stage: PublicationStage;
  /** Consecutive failures. */
  readonly attempts: number;
  readonly failing: Failing;
  /** Why the last attempt failed; empty if none has. */
  readonly reason: string;
}

export interface PublicationInput {
  readonly volumeId: string;
  readonly nodeId: string;
  readonly stage: PublicationStage;
}

export const publicationMachine = setup({
  types: { context: {} as PublicationContext, events: {} as PublicationEvent, input: {} as PublicationInput },
  actions: {
    /** Answered by `call.answered` or `call.failed`. */
    callPublish: effect("callPublish"),
    callUnpublish: effect("callUnpublish"),
    /** Writes the plugin's answer; answered by `write.settled` or `write.failed`. U1 */
    writePublished: effect("writePublished"),
    writeAbandoned: effect("writeAbandoned"),
    writeErasure: effect("writeErasure"),
    /** Writes the reason into the volume's publish status, for operators; has no answer. */
    complain: effect<{ reason: string }>("complain"),
    reportUnexpected: effect("reportUnexpected"),
    rememberStage: assign((_, { stage }: { stage: PublicationStage }) => ({ stage })),
    rememberFailure: assign(({ context }, { reason, failing }: { reason: string; failing: Failing }) => ({
      reason,
      failing,
      attempts: context.attempts + 1,
    })),
    forgetFailure: assign({ attempts: 0, reason: "", failing: "unclear" }),
  },
  guards: {
    is: ({ context }, { stage }: { stage: PublicationStage }) => context.stage === stage,
    isOther: ({ context }, { stage }: { stage: PublicationStage }) => context.stage !== stage,
  },
  delays: { retry: ({ context }) => retryMs(context.attempts, context.failing) },
}).createMachine({
  id: "publication",
  context: ({ input }) => ({ ...input, attempts: 0, failing: "unclear", reason: "" }),
  initial: "looking",
  options: { maxIterations: 1_000 },
  on: {
    "volume.changed": { actions: { type: "rememberStage", params: ({ event }) => event } },
    // Ignored in states that do not wait for the plugin.
    "plugin.served": {},
    "*": { actions: "reportUnexpected" },
  },
  states: {
    looking: {
      description: "Choosing the next step from the stored state.",
      always: [
        { guard: { type: "is", params: { stage: "blocked" } }, target: "blocked" },
        { guard: { type: "is", params: { stage: "wanted" } }, target: "publishing" },
        { guard: { type: "is", params: { stage: "published" } }, target: "published" },
        { guard: { type: "is", params: { stage: "leaving" } }, target: "leaving" },
        { guard: { type: "is", params: { stage: "abandoned" } }, target: "abandoning" },
        { guard: { type: "is", params: { stage: "left" } }, target: "unpublishing" },
        { target: "gone" },
      ],
    },
    blocked: {
      description: "Another node has the volume. U3",
      meta: {
        waitingFor: "{another node}, to unmount it: only one node can use it at a time",
        wokenBy: { "volume.changed": "that node's report, or its removal from the cluster" },
      },
      on: {
        "volume.changed": { target: "looking", actions: { type: "rememberStage", params: ({ event }) => event } },
      },
    },
    publishing: {
      description: "The plugin is attaching the volume to the node.",
      meta: {
        waitingFor: "{the storage plugin}, to attach it to {the node}",
        wokenBy: { "call.*": "the plugin's answer" },
      },
      entry: "callPublish",
      on: {
        "call.answered": { target: "recording", actions: "forgetFailure" },
        "call.failed": {
          target: "resting",
          actions: [
            { type: "rememberFailure", params: ({ event }) => event },
            { type: "complain", params: ({ event }) => event },
          ],
        },
      },
    },
    recording: {
      description: "Writing that the node can use the volume, unless no task there needs it any more. U1, U2",
      meta: { waitingFor: "the log, to record the plugin's answer", wokenBy: { "write.*": "the ledger's answer" } },
      entry: "writePublished",
      on: {
        "write.settled": { target: "looking", actions: { type: "rememberStage", params: ({ event }) => event } },
        "write.failed": { target: "resting", actions: { type: "rememberFailure", params: ({ event }) => event } },
      },
    },
    published: {
      description: "The node has the volume, or may have it.",
      meta: {
        waitingFor: "nothing: {the node} has it",
        wokenBy: { "volume.changed": "the end of its last task there" },
      },
      on: {
        "volume.changed": { target: "looking", actions: { type: "rememberStage", params: ({ event }) => event } },
      },
    },
    leaving: {
      description: "No task on the node needs the volume any more.",
      meta: {
        waitingFor: "{the node}, to unmount it",
        wokenBy: { "volume.changed": "the node's report, or its removal from the cluster" },
      },
      on: {
        "volume.changed": { target: "looking", actions: { type: "rememberStage", params: ({ event }) => event } },
      },
    },
    abandoning: {
      description: "The node was removed from the cluster and will not report again.",
      meta: {
        waitingFor: "the log, to record that the node no longer has it",
        wokenBy: { "write.*": "the ledger's answer" },
      },
      entry: "writeAbandoned",
      on: {
        "write.settled": { target: "looking", actions: { type: "rememberStage", params: ({ event }) => event } },
        "write.failed": { target: "resting", actions: { type: "rememberFailure", params: ({ event }) => event } },
      },
    },
    unpublishing: {
      description: "The plugin is detaching the volume from the node. U2",
      meta: {
        waitingFor: "{the storage plugin}, to detach it from {the node}",
        wokenBy: { "call.*": "the plugin's answer" },
      },
      entry: "callUnpublish",
      on: {
        "call.answered": { target: "erasing", actions: "forgetFailure" },
        "call.failed": {
          target: "resting",
          actions: [
            { type: "rememberFailure", params: ({ event }) => event },
            { type: "complain", params: ({ event }) => event },
          ],
        },
      },
    },
    erasing: {
      description: "The volume is detached from the node: removing the entry. U1",
      meta: { waitingFor: "the log, to record the plugin's answer", wokenBy: { "write.*": "the ledger's answer" } },
      entry: "writeErasure",
      on: {
        "write.settled": { target: "looking", actions: { type: "rememberStage", params: ({ event }) => event } },
        "write.failed": { target: "resting", actions: { type: "rememberFailure", params: ({ event }) => event } },
      },
    },
    resting: {
      description: "A call or a write failed; the delay doubles each time.",
      meta: {
        waitingFor: "the next call to {the storage plugin}, to {attach or detach it}",
        wokenBy: {
          retry: "the end of the retry delay",
          "volume.changed": "a change of the volume",
          "plugin.served": "the plugin's return",
        },
      },
      after: { retry: "looking" },
      on: {
        "plugin.served": "looking",
        "volume.changed": [
          {
            guard: { type: "isOther", params: ({ event }) => event },
            target: "looking",
            actions: [{ type: "rememberStage", params: ({ event }) => event }, "forgetFailure"],
          },
          {},
        ],
      },
    },
    gone: { description: "The volume is no longer listed for the node.", type: "final" },
  },
});
