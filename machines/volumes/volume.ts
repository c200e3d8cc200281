/**
 * The life of a cluster volume at its storage plugin, as the leader leads it.
 *
 *   looking ──▶ noting ──▶ looking ──▶ creating ──▶ recording ──▶ looking ──▶ created
 *   created ──▶ inUse ──▶ deleting ──▶ removing ──▶ gone             every failure: resting, then looking again
 *
 * What is next is always read from the store (`machines/volumes/csi/stages.ts`), never remembered.
 *
 * V1: before the plugin is first asked for the volume the store says so. G1
 * V2: a volume is deleted only while no node and no task has it; the object goes after the plugin has said yes. G2
 * V3: whatever is asked of the plugin may be asked twice: after a failure, or by the next leader.
 * V4: one call at a time.
 */
import { assign, setup } from "xstate";
import { retryMs, type Failing } from "./csi/calls.ts";
import type { VolumeStage } from "./csi/stages.ts";
import { effect } from "../effect.ts";

export type VolumeEvent =
  /** Told whenever the object or its users changed. */
  | { readonly type: "volume.changed"; readonly stage: VolumeStage }
  | { readonly type: "call.answered" }
  | { readonly type: "call.failed"; readonly reason: string; readonly failing: Failing }
  /** The store has it; `stage` is what it says now. */
  | { readonly type: "write.settled"; readonly stage: VolumeStage }
  | { readonly type: "write.failed"; readonly reason: string; readonly failing: "unclear" }
  /** The plugin can be reached (again), or has changed. */
  | { readonly type: "plugin.served" };

export interface VolumeContext {
  readonly volumeId: string;
  readonly stage: VolumeStage;
  /** Tries that have failed in a row. */
  readonly attempts: number;
  readonly failing: Failing;
  /** Why the last one did; empty when none has. */
  readonly reason: string;
}

export interface VolumeInput {
  readonly volumeId: string;
  readonly stage: VolumeStage;
}

export const volumeMachine = setup({
  types: { context: {} as VolumeContext, events: {} as VolumeEvent, input: {} as VolumeInput },
  actions: {
    /** Answered by `write.settled` or `write.failed`. V1 */
    writeAsked: effect("writeAsked"),
    /** Answered by `call.answered` or `call.failed`. */
    callCreate: effect("callCreate"),
    /** What the plugin answered; as `writeAsked`. */
    writeCreated: effect("writeCreated"),
    callDelete: effect("callDelete"),
    writeRemoval: effect("writeRemoval"),
    reportUnexpected: effect("reportUnexpected"),
    rememberStage: assign((_, { stage }: { stage: VolumeStage }) => ({ stage })),
    rememberFailure: assign(({ context }, { reason, failing }: { reason: string; failing: Failing }) => ({
      reason,
      failing,
      attempts: context.attempts + 1,
    })),
    forgetFailure: assign({ attempts: 0, reason: "", failing: "unclear" }),
  },
  guards: {
    is: ({ context }, { stage }: { stage: VolumeStage }) => context.stage === stage,
    isOther: ({ context }, { stage }: { stage: VolumeStage }) => context.stage !== stage,
    /** The plugin was asked for a volume that nobody wants any more, and has said that it will not make it. */
    isNeverMade: ({ context }, { failing }: { failing: Failing }) =>
      context.stage === "unwanted-asked" && failing === "refused",
  },
  delays: { retry: ({ context }) => retryMs(context.attempts, context.failing) },
}).createMachine({
  id: "volume",
  context: ({ input }) => ({ ...input, attempts: 0, failing: "unclear", reason: "" }),
  initial: "looking",
  options: { maxIterations: 1_000 },
  on: {
    "volume.changed": { actions: { type: "rememberStage", params: ({ event }) => event } },
    // Where nothing waits for the plugin.
    "plugin.served": {},
    "*": { actions: "reportUnexpected" },
  },
  states: {
    looking: {
      description: "Choosing the next step from the stored state.",
      always: [
        { guard: { type: "is", params: { stage: "new" } }, target: "noting" },
        { guard: { type: "is", params: { stage: "asked" } }, target: "creating" },
        { guard: { type: "is", params: { stage: "created" } }, target: "created" },
        { guard: { type: "is", params: { stage: "unwanted-used" } }, target: "inUse" },
        { guard: { type: "is", params: { stage: "unwanted-new" } }, target: "removing" },
        // Only its id, which the plugin has, tells what to delete.
        { guard: { type: "is", params: { stage: "unwanted-asked" } }, target: "creating" },
        { guard: { type: "is", params: { stage: "unwanted-created" } }, target: "deleting" },
        { target: "gone" },
      ],
    },
    noting: {
      description: "Writing that the plugin is being asked. V1",
      entry: "writeAsked",
      on: {
        "write.settled": { target: "looking", actions: { type: "rememberStage", params: ({ event }) => event } },
        "write.failed": { target: "resting", actions: { type: "rememberFailure", params: ({ event }) => event } },
      },
    },
    creating: {
      description: "The plugin is creating the volume, or finding the one that it created earlier. V3",
      entry: "callCreate",
      on: {
        "call.answered": { target: "recording", actions: "forgetFailure" },
        "call.failed": [
          { guard: { type: "isNeverMade", params: ({ event }) => event }, target: "removing" },
          { target: "resting", actions: { type: "rememberFailure", params: ({ event }) => event } },
        ],
      },
    },
    recording: {
      description: "Writing the plugin's answer; from then on tasks can use the volume.",
      entry: "writeCreated",
      on: {
        "write.settled": { target: "looking", actions: { type: "rememberStage", params: ({ event }) => event } },
        "write.failed": { target: "resting", actions: { type: "rememberFailure", params: ({ event }) => event } },
      },
    },
    created: {
      description: "The volume exists; its publications on nodes are charts of their own.",
      on: {
        "volume.changed": { target: "looking", actions: { type: "rememberStage", params: ({ event }) => event } },
      },
    },
    inUse: {
      description: "Marked for removal; waiting for the last node and task that uses it. V2",
      on: {
        "volume.changed": { target: "looking", actions: { type: "rememberStage", params: ({ event }) => event } },
      },
    },
    deleting: {
      description: "The plugin is deleting the volume. V2",
      entry: "callDelete",
      on: {
        "call.answered": { target: "removing", actions: "forgetFailure" },
        "call.failed": { target: "resting", actions: { type: "rememberFailure", params: ({ event }) => event } },
      },
    },
    removing: {
      description: "The plugin has deleted the volume: removing the object.",
      entry: "writeRemoval",
      on: {
        "write.settled": { target: "looking", actions: { type: "rememberStage", params: ({ event }) => event } },
        "write.failed": { target: "resting", actions: { type: "rememberFailure", params: ({ event }) => event } },
      },
    },
    resting: {
      description: "A call or a write failed; retrying after a doubling delay, or as soon as something changes.",
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
    gone: { description: "The object is gone.", type: "final" },
  },
});
