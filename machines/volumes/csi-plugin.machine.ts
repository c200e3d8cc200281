/**
 * The link to one storage plugin: it is discovered, dialled, identified and then used.
 *
 *   absent ⇄ dialling ──▶ identifying ──▶ serving
 *               ▲───────────┴── resting ◀───┘
 *
 * L1: a plugin gets no other calls before it has reported its capabilities and that it is ready.
 * L2: the retry delay doubles, and resets only after a link has held for a while: a plugin that accepts and then drops
 *     connections is not dialled in a loop.
 */
import { assign } from "xstate";
import { csiTimes, retryMs } from "./csi/calls.ts";
import { chart, effect } from "../chart.ts";

/** A plugin's report on itself, as far as the caller needs it. */
export interface PluginFacts {
  /** Its own name, which can differ from the one that it is registered under here. */
  readonly pluginName: string;
  readonly version: string;
  /** It creates and deletes volumes; otherwise they are identified by name. */
  readonly makesVolumes: boolean;
  /** It attaches volumes to nodes and detaches them; otherwise they are available on every node. */
  readonly publishes: boolean;
  readonly publishesReadOnly: boolean;
  /** On a node: it stages a volume once for all tasks that use it there. */
  readonly stages: boolean;
  /** On a node: the plugin's id of the node. */
  readonly nodeId: string;
  /** On a node: 0 if not reported. */
  readonly maxVolumesPerNode: number;
  /** On a node: null if the plugin has no topology. */
  readonly topology: Readonly<Record<string, string>> | null;
}

export const noFacts: PluginFacts = {
  pluginName: "",
  version: "",
  makesVolumes: false,
  publishes: false,
  publishesReadOnly: false,
  stages: false,
  nodeId: "",
  maxVolumesPerNode: 0,
  topology: null,
};

export type CsiPluginEvent =
  /** The plugin exists; sent at the start and whenever it appears. */
  | { readonly type: "plugin.listed" }
  | { readonly type: "plugin.unlisted" }
  | { readonly type: "link.opened" }
  /** The link closed or broke, at any time. */
  | { readonly type: "link.lost"; readonly reason: string }
  | { readonly type: "plugin.identified"; readonly facts: PluginFacts };

interface CsiPluginContext {
  readonly name: string;
  readonly facts: PluginFacts;
  readonly attempts: number;
  readonly reason: string;
}

export const csiPluginMachine = chart({
  types: {
    context: {} as CsiPluginContext,
    events: {} as CsiPluginEvent,
    input: {} as { readonly name: string },
  },
  effects: {
    /** Answered by `link.opened` or `link.lost`. */
    dial: effect(),
    /** Answered by `plugin.identified` or `link.lost`. L1 */
    identify: effect(),
    close: effect(),
    /** Lets everything that waits for the plugin continue. */
    announce: effect(),
  },
  actions: {
    rememberFacts: assign((_, { facts }: { facts: PluginFacts }) => ({ facts })),
    rememberFailure: assign(({ context }, { reason }: { reason: string }) => ({
      reason,
      attempts: context.attempts + 1,
    })),
    forgetFailure: assign({ attempts: 0, reason: "" }),
  },
  delays: {
    linkHeld: csiTimes.linkHeldMs,
  },
  drawnDelays: { retry: ({ context }) => retryMs({ attempts: context.attempts, failing: "unclear" }) },
  shows: {
    context: [
      "name",
      "attempts",
      "facts.pluginName",
      "facts.version",
      "facts.makesVolumes",
      "facts.publishes",
      "facts.publishesReadOnly",
      "facts.stages",
      "facts.maxVolumesPerNode",
    ],
    events: [
      "facts.pluginName",
      "facts.version",
      "facts.makesVolumes",
      "facts.publishes",
      "facts.publishesReadOnly",
      "facts.stages",
      "facts.maxVolumesPerNode",
    ],
  },
}).createMachine({
  id: "csiPlugin",
  context: ({ input }) => ({ name: input.name, facts: noFacts, attempts: 0, reason: "" }),
  initial: "absent",
  ignore: [
    "plugin.listed",
    // Late events of a closed link.
    "link.*",
    "plugin.identified",
  ],
  on: {
    "plugin.unlisted": { target: ".absent", actions: ["close", "forgetFailure"] },
  },
  states: {
    absent: {
      description: "No plugin of this name is on this node.",
      meta: { waitingFor: "a plugin of this name on this node", wokenBy: { "plugin.listed": "its start" } },
      on: { "plugin.listed": "dialling" },
    },
    dialling: {
      description: "Connecting to the plugin's socket.",
      meta: {
        waitingFor: "a connection to the plugin's socket",
        wokenBy: { "link.opened": "the connection", "link.lost": "its failure" },
      },
      entry: "dial",
      on: {
        "link.opened": "identifying",
        "link.lost": { target: "resting", actions: { type: "rememberFailure", params: ({ event }) => event } },
      },
    },
    identifying: {
      description: "Asking for the plugin's identity, capabilities and readiness. L1",
      meta: {
        waitingFor: "the plugin's identity, capabilities and readiness",
        wokenBy: { "plugin.identified": "its answers", "link.lost": "the end of the connection" },
      },
      entry: "identify",
      on: {
        "plugin.identified": {
          target: "serving",
          actions: { type: "rememberFacts", params: ({ event }) => event },
        },
        "link.lost": {
          target: "resting",
          actions: ["close", { type: "rememberFailure", params: ({ event }) => event }],
        },
      },
    },
    serving: {
      description: "Ready; calls go to the plugin.",
      meta: {
        waitingFor: "nothing: calls go to the plugin",
        wokenBy: { "link.lost": "the end of the connection", "plugin.unlisted": "the plugin's removal" },
      },
      tags: ["serving"],
      entry: "announce",
      after: { linkHeld: { actions: "forgetFailure" } },
      on: {
        "link.lost": {
          target: "resting",
          actions: ["close", { type: "rememberFailure", params: ({ event }) => event }],
        },
      },
    },
    resting: {
      description: "The plugin could not be reached. L2",
      meta: {
        waitingFor: "the next attempt to reach the plugin",
        wokenBy: { retry: "the end of the delay", "plugin.unlisted": "the plugin's removal" },
      },
      after: { retry: "dialling" },
    },
  },
});
