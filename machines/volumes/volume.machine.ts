/**
 * The life of a cluster volume at its storage plugin, run by the leader.
 *
 *   deciding ──▶ recordingAttempt ──▶ deciding ──▶ creating ──▶ recording ──▶ deciding ──▶ created
 *   created ──▶ inUse ──▶ deleting ──▶ removing ──▶ gone             every failure: resting, then deciding again
 *
 * The next step is always derived from the store (`machines/volumes/csi/stages.ts`), never remembered.
 *
 * V1: the store records the request before the plugin is first asked to create the volume. G1
 * V2: a volume is deleted only while no node and no task has it; the object is removed after the plugin has confirmed. G2
 * V3: every call to the plugin may be repeated: after a failure, or by the next leader.
 * V4: one call at a time.
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
import type { VolumeStage } from "./csi/stages.ts";
import { chart, effect } from "../chart.ts";

export interface VolumeContext extends StepFailures {
  readonly volumeId: string;
  readonly stage: VolumeStage;
}

interface VolumeInput {
  readonly volumeId: string;
  readonly stage: VolumeStage;
}

export const volumeMachine = chart({
  types: { context: {} as VolumeContext, events: {} as StoredStepEvent<VolumeStage>, input: {} as VolumeInput },
  effects: {
    /** Answered by `write.settled` or `write.failed`. V1 */
    writeAsked: effect(),
    /** Answered by `call.answered` or `call.failed`. */
    callCreate: effect(),
    /** Writes the plugin's answer; answered like `writeAsked`. */
    writeCreated: effect(),
    callDelete: effect(),
    writeRemoval: effect(),
  },
  actions: {
    rememberStage: assign((_, { stage }: { stage: VolumeStage }) => ({ stage })),
    rememberFailure: assign(({ context }, failure: StepFailure) => withFailure(context, failure)),
    forgetFailures: assign(noFailures),
  },
  guards: {
    is: ({ context }, { stage }: { stage: VolumeStage }) => context.stage === stage,
    isOther: ({ context }, { stage }: { stage: VolumeStage }) => context.stage !== stage,
    /** The plugin has refused to create a volume that is no longer wanted. */
    isNeverMade: ({ context }, { failing }: StepFailure) => context.stage === "unwanted-asked" && failing === "refused",
  },
  drawnDelays: { retry: ({ context }) => retryMs(context) },
  shows: { context: ["volumeId", "stage", "attempts", "failing"], events: ["stage", "failing"] },
}).createMachine({
  id: "volume",
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
    "call.failed": { target: ".resting", actions: { type: "rememberFailure", params: ({ event }) => event } },
    "write.failed": { target: ".resting", actions: { type: "rememberFailure", params: ({ event }) => event } },
  },
  states: {
    deciding: {
      description: "Choosing the next step from the stored state.",
      always: [
        { guard: { type: "is", params: { stage: "new" } }, target: "recordingAttempt" },
        { guard: { type: "is", params: { stage: "asked" } }, target: "creating" },
        { guard: { type: "is", params: { stage: "created" } }, target: "created" },
        { guard: { type: "is", params: { stage: "unwanted-used" } }, target: "inUse" },
        { guard: { type: "is", params: { stage: "unwanted-new" } }, target: "removing" },
        // Deleting requires the id: repeat the creation to get it from the plugin.
        { guard: { type: "is", params: { stage: "unwanted-asked" } }, target: "creating" },
        { guard: { type: "is", params: { stage: "unwanted-created" } }, target: "deleting" },
        { target: "gone" },
      ],
    },
    recordingAttempt: {
      description: "Writing that the plugin is being asked. V1",
      meta: {
        waitingFor: "the log, to record that the plugin is asked",
        wokenBy: { "write.*": "the ledger's answer" },
      },
      entry: "writeAsked",
    },
    creating: {
      description: "The plugin is creating the volume, or finding the one that it created earlier. V3",
      meta: { waitingFor: "{the storage plugin}, to create it", wokenBy: { "call.*": "the plugin's answer" } },
      entry: "callCreate",
      on: {
        "call.answered": { target: "recording", actions: "forgetFailures" },
        "call.failed": { guard: { type: "isNeverMade", params: ({ event }) => event }, target: "removing" },
      },
    },
    recording: {
      description: "Writing the plugin's answer; from then on tasks can use the volume.",
      meta: { waitingFor: "the log, to record the plugin's answer", wokenBy: { "write.*": "the ledger's answer" } },
      entry: "writeCreated",
    },
    created: {
      description: "The volume exists; its publications on nodes are charts of their own.",
      meta: {
        waitingFor: "nothing: it exists at {the storage plugin} as {its id}",
        wokenBy: { "volume.changed": "its removal, or a change of its users" },
      },
      on: {
        "volume.changed": { target: "deciding", actions: { type: "rememberStage", params: ({ event }) => event } },
      },
    },
    inUse: {
      description: "Marked for removal while a node or task uses it. V2",
      meta: {
        waitingFor: "the tasks and nodes that use it: it is removed after the last of them",
        wokenBy: { "volume.changed": "the end of these tasks, and their nodes' reports that they have unmounted it" },
      },
      on: {
        "volume.changed": { target: "deciding", actions: { type: "rememberStage", params: ({ event }) => event } },
      },
    },
    deleting: {
      description: "The plugin is deleting the volume. V2",
      meta: { waitingFor: "{the storage plugin}, to delete it", wokenBy: { "call.*": "the plugin's answer" } },
      entry: "callDelete",
      on: {
        "call.answered": { target: "removing", actions: "forgetFailures" },
      },
    },
    removing: {
      description: "The plugin has deleted the volume: removing the object.",
      meta: { waitingFor: "the log, to remove the object", wokenBy: { "write.*": "the ledger's answer" } },
      entry: "writeRemoval",
    },
    resting: {
      description: "A call or a write failed; the delay doubles each time.",
      meta: {
        waitingFor: "the next call to {the storage plugin}",
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
    gone: { description: "The object is removed.", type: "final" },
  },
});
