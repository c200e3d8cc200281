/**
 * One cluster volume on one node: the leader has the storage plugin attach and detach it.
 *
 *   deciding ──▶ blocked | publishing ──▶ recording ──▶ deciding ──▶ published
 *   published ──▶ leaving ──▶ unpublishing ──▶ erasing ──▶ gone          every failure: resting, then deciding again
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
import { assign } from "xstate";
import {
  noFailures,
  retryMs,
  withFailure,
  type StepFailure,
  type StepFailures,
  type StoredStepEvent,
} from "./csi/calls.ts";
import type { PublicationStage } from "./csi/stages.ts";
import { chart, effect } from "../chart.ts";

export interface PublicationContext extends StepFailures {
  readonly volumeId: string;
  readonly nodeId: string;
  readonly stage: PublicationStage;
}

interface PublicationInput {
  readonly volumeId: string;
  readonly nodeId: string;
  readonly stage: PublicationStage;
}

export const publicationMachine = chart({
  types: {
    context: {} as PublicationContext,
    events: {} as StoredStepEvent<PublicationStage>,
    input: {} as PublicationInput,
  },
  effects: {
    /** Answered by `call.answered` or `call.failed`. */
    callPublish: effect(),
    callUnpublish: effect(),
    /** Writes the plugin's answer; answered by `write.settled` or `write.failed`. U1 */
    writePublished: effect(),
    writeAbandoned: effect(),
    writeErasure: effect(),
    /** Writes the reason into the volume's publish status, for operators; has no answer. */
    complain: effect<{ reason: string }>(),
  },
  actions: {
    rememberStage: assign((_, { stage }: { stage: PublicationStage }) => ({ stage })),
    rememberFailure: assign(({ context }, failure: StepFailure) => withFailure(context, failure)),
    forgetFailures: assign(noFailures),
  },
  guards: {
    is: ({ context }, { stage }: { stage: PublicationStage }) => context.stage === stage,
    isOther: ({ context }, { stage }: { stage: PublicationStage }) => context.stage !== stage,
  },
  drawnDelays: { retry: ({ context }) => retryMs(context) },
  shows: { context: ["volumeId", "nodeId", "stage", "attempts", "failing"], events: ["stage", "failing"] },
}).createMachine({
  id: "publication",
  context: ({ input }) => ({ ...input, ...noFailures }),
  initial: "deciding",
  ignore: [
    // Ignored in states that do not wait for the plugin.
    "plugin.served",
  ],
  on: {
    "volume.changed": { actions: { type: "rememberStage", params: ({ event }) => event } },
    "write.settled": { target: ".deciding", actions: { type: "rememberStage", params: ({ event }) => event } },
    // Every step fails alike.
    "call.failed": {
      target: ".resting",
      actions: [
        { type: "rememberFailure", params: ({ event }) => event },
        { type: "complain", params: ({ event }) => event },
      ],
    },
    "write.failed": { target: ".resting", actions: { type: "rememberFailure", params: ({ event }) => event } },
  },
  states: {
    deciding: {
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
        "volume.changed": { target: "deciding", actions: { type: "rememberStage", params: ({ event }) => event } },
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
        "call.answered": { target: "recording", actions: "forgetFailures" },
      },
    },
    recording: {
      description: "Writing that the node can use the volume, unless no task there needs it any more. U1, U2",
      meta: { waitingFor: "the log, to record the plugin's answer", wokenBy: { "write.*": "the ledger's answer" } },
      entry: "writePublished",
    },
    published: {
      description: "The node has the volume, or may have it.",
      meta: {
        waitingFor: "nothing: {the node} has it",
        wokenBy: { "volume.changed": "the end of its last task there" },
      },
      on: {
        "volume.changed": { target: "deciding", actions: { type: "rememberStage", params: ({ event }) => event } },
      },
    },
    leaving: {
      description: "No task on the node needs the volume any more.",
      meta: {
        waitingFor: "{the node}, to unmount it",
        wokenBy: { "volume.changed": "the node's report, or its removal from the cluster" },
      },
      on: {
        "volume.changed": { target: "deciding", actions: { type: "rememberStage", params: ({ event }) => event } },
      },
    },
    abandoning: {
      description: "The node was removed from the cluster and will not report again.",
      meta: {
        waitingFor: "the log, to record that the node no longer has it",
        wokenBy: { "write.*": "the ledger's answer" },
      },
      entry: "writeAbandoned",
    },
    unpublishing: {
      description: "The plugin is detaching the volume from the node. U2",
      meta: {
        waitingFor: "{the storage plugin}, to detach it from {the node}",
        wokenBy: { "call.*": "the plugin's answer" },
      },
      entry: "callUnpublish",
      on: {
        "call.answered": { target: "erasing", actions: "forgetFailures" },
      },
    },
    erasing: {
      description: "The volume is detached from the node: removing the entry. U1",
      meta: { waitingFor: "the log, to record the plugin's answer", wokenBy: { "write.*": "the ledger's answer" } },
      entry: "writeErasure",
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
      after: { retry: "deciding" },
      on: {
        "plugin.served": "deciding",
        "volume.changed": [
          {
            guard: { type: "isOther", params: ({ event }) => event },
            target: "deciding",
            actions: [{ type: "rememberStage", params: ({ event }) => event }, "forgetFailures"],
          },
          {},
        ],
      },
    },
    gone: { description: "The volume is no longer listed for the node.", type: "final" },
  },
});
