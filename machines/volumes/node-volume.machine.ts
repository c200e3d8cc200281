/**
 * One cluster volume on one node: the node's agent has the storage plugin mount and unmount it.
 *
 *   deciding ──▶ staging ──▶ publishing ──▶ ready
 *   deciding ──▶ used ──▶ unpublishing ──▶ unstaging ──▶ reporting ──▶ gone     every failure: resting, then deciding again
 *
 * Nothing is stored on disk: the manager sends the wanted volumes again, and every call may be repeated.
 *
 * M1: a task starts only while its volumes are ready here.
 * M2: a volume is unmounted only when no task of this node uses it.
 * M3: the agent reports a volume as unmounted only after the plugin has confirmed it, and repeats the report until the manager
 *     has answered.
 */
import { assign } from "xstate";
import {
  noFailures,
  retryMs,
  withFailure,
  type CallOutcome,
  type StepFailure,
  type StepFailures,
} from "./csi/calls.ts";
import { chart, effect } from "../chart.ts";

type NodeVolumeEvent =
  | { readonly type: "volume.wanted" }
  | { readonly type: "volume.unwanted" }
  /** Whether a task that has not ended uses it; tasks that still wait for the volume do not count. */
  | { readonly type: "users.changed"; readonly isUsed: boolean }
  | CallOutcome
  /** The plugin is reachable (again), or a new session exists. */
  | { readonly type: "path.restored" };

interface NodeVolumeContext extends StepFailures {
  readonly volumeId: string;
  readonly isWanted: boolean;
  readonly isUsed: boolean;
}

interface NodeVolumeInput {
  readonly volumeId: string;
  readonly isWanted: boolean;
  readonly isUsed: boolean;
}

export const nodeVolumeMachine = chart({
  types: { context: {} as NodeVolumeContext, events: {} as NodeVolumeEvent, input: {} as NodeVolumeInput },
  effects: {
    /** All of these are answered by `call.answered` or `call.failed`. */
    stage: effect(),
    publish: effect(),
    unpublish: effect(),
    unstage: effect(),
    /** Reports to the manager that the node has unmounted the volume. M3 */
    tell: effect(),
    /** Lets tasks that wait for the volume continue. M1 */
    announce: effect(),
  },
  actions: {
    want: assign({ isWanted: true }),
    unwant: assign({ isWanted: false }),
    rememberUse: assign((_, { isUsed }: { isUsed: boolean }) => ({ isUsed })),
    rememberFailure: assign(({ context }, failure: StepFailure) => withFailure(context, failure)),
    forgetFailures: assign(noFailures),
  },
  guards: {
    isWanted: ({ context }) => context.isWanted,
    isUsed: ({ context }) => context.isUsed,
  },
  drawnDelays: { retry: ({ context }) => retryMs(context) },
  shows: { context: ["volumeId", "isWanted", "isUsed", "attempts", "failing"], events: ["isUsed", "failing"] },
}).createMachine({
  id: "nodeVolume",
  context: ({ input }) => ({ ...input, ...noFailures }),
  initial: "deciding",
  ignore: ["path.restored"],
  on: {
    // A call in flight finishes first; `deciding` then acts on what arrived meanwhile.
    "volume.wanted": { actions: "want" },
    "volume.unwanted": { actions: "unwant" },
    "users.changed": { actions: { type: "rememberUse", params: ({ event }) => event } },
    // Every step fails alike.
    "call.failed": { target: ".resting", actions: { type: "rememberFailure", params: ({ event }) => event } },
  },
  states: {
    deciding: {
      description: "Deciding the next step.",
      always: [
        { guard: "isWanted", target: "staging" },
        { guard: "isUsed", target: "used" },
        { target: "unpublishing" },
      ],
    },
    staging: {
      description: "The plugin is staging the volume on this node, if it supports staging.",
      meta: {
        waitingFor: "{the storage plugin}, to stage the volume on this node",
        wokenBy: { "call.*": "the plugin's answer" },
      },
      entry: "stage",
      on: {
        "call.answered": [{ guard: "isWanted", target: "publishing" }, { target: "deciding" }],
      },
    },
    publishing: {
      description: "The plugin is publishing (mounting) the volume.",
      meta: { waitingFor: "{the storage plugin}, to mount the volume", wokenBy: { "call.*": "the plugin's answer" } },
      entry: "publish",
      on: {
        "call.answered": [
          { guard: "isWanted", target: "ready", actions: "forgetFailures" },
          { target: "deciding", actions: "forgetFailures" },
        ],
      },
    },
    ready: {
      description: "Published: tasks may use the volume. M1",
      meta: {
        waitingFor: "nothing: tasks may use the volume",
        wokenBy: { "volume.unwanted": "the manager's request to unmount it" },
      },
      tags: ["ready"],
      entry: "announce",
      on: { "volume.unwanted": { target: "deciding", actions: "unwant" } },
    },
    used: {
      description: "The volume is no longer wanted; no new task gets it. M2",
      meta: {
        waitingFor: "the last task that uses the volume",
        wokenBy: { "users.changed": "the end of that task", "volume.wanted": "the manager's assignment of it" },
      },
      on: {
        "users.changed": { target: "deciding", actions: { type: "rememberUse", params: ({ event }) => event } },
        "volume.wanted": { target: "deciding", actions: "want" },
      },
    },
    unpublishing: {
      description: "The plugin is unpublishing (unmounting) the volume. M2",
      meta: { waitingFor: "{the storage plugin}, to unmount the volume", wokenBy: { "call.*": "the plugin's answer" } },
      entry: "unpublish",
      on: {
        "call.answered": "unstaging",
      },
    },
    unstaging: {
      description: "The plugin is unstaging the volume.",
      meta: { waitingFor: "{the storage plugin}, to unstage the volume", wokenBy: { "call.*": "the plugin's answer" } },
      entry: "unstage",
      on: {
        "call.answered": "reporting",
      },
    },
    reporting: {
      description: "Reporting to the manager that the volume is unmounted. M3",
      meta: {
        waitingFor: "the manager, to record that the volume is unmounted",
        wokenBy: { "call.*": "the manager's answer" },
      },
      entry: "tell",
      on: {
        "call.answered": [
          { guard: "isWanted", target: "deciding", actions: "forgetFailures" },
          { target: "gone", actions: "forgetFailures" },
        ],
      },
    },
    resting: {
      description: "A call failed; the delay doubles each time.",
      meta: {
        waitingFor: "the next call",
        wokenBy: {
          retry: "the end of the retry delay",
          "path.restored": "the return of the plugin or the manager",
          "volume.*": "a change of the assignment",
        },
      },
      after: { retry: "deciding" },
      on: {
        "path.restored": "deciding",
        "volume.wanted": { target: "deciding", actions: "want" },
        "volume.unwanted": { target: "deciding", actions: "unwant" },
      },
    },
    gone: { description: "Nothing of the volume is left on this node.", type: "final" },
  },
});
