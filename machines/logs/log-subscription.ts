/**
 * The life of one log subscription, at the manager that took it: which nodes are asked, which have sent everything, and
 * what is said at the end. No line of output passes through here.
 *
 *   choosing ──▶ gathering ──▶ ended          (what there is)
 *           └──▶ following ──▶ closing ──▶ ended   (what comes, until the follower leaves or nothing is left to follow)
 *
 * LS1: a subscription that does not follow ends once every selected node has sent all it had, or is known not to.
 * LS2: what is missing is named at the end; a follower is told of it at once.
 * LS3: a follower that does not read is cut, so that the nodes' connections are not held up for ever.
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";
import {
  ageNodes,
  endNode,
  holdNodes,
  isEveryNodeOver,
  isNobodyHeld,
  logLimits,
  selectNodes,
  warningOf,
  type HeldNode,
  type LogNodes,
  type LogStep,
} from "./log-nodes.ts";
import type { SelectedNode } from "./log-selection.ts";

export type LogSubscriptionEvent =
  | {
      readonly type: "selection.changed";
      readonly nodes: readonly SelectedNode[];
      readonly unscheduled: readonly string[];
      readonly exists: boolean;
    }
  /** A manager says that it has told these. */
  | { readonly type: "nodes.held"; readonly held: readonly HeldNode[]; readonly holder: string }
  /** `error` is empty when everything has come. */
  | { readonly type: "node.ended"; readonly nodeId: string; readonly attempt: number; readonly error: string }
  | { readonly type: "follower.left" }
  | { readonly type: "follower.stalled"; readonly limit: string }
  | { readonly type: "broker.stopped" };

/** How a subscription ended. */
export type LogEnd =
  | { readonly kind: "complete" }
  | { readonly kind: "incomplete"; readonly warning: string }
  | { readonly kind: "left" }
  | { readonly kind: "stalled"; readonly limit: string }
  | { readonly kind: "stopped" };

export interface LogSubscriptionContext {
  readonly follow: boolean;
  readonly nodes: LogNodes;
  readonly unscheduled: readonly string[];
  /** Reasons, each once, in the order in which they came up. */
  readonly missing: readonly string[];
  /** Those of the last step. */
  readonly news: readonly string[];
  readonly closingTicks: number;
}

function taken(context: LogSubscriptionContext, { missing, nodes }: LogStep): Partial<LogSubscriptionContext> {
  const added = missing.filter((reason) => !context.missing.includes(reason));
  return { nodes, news: missing, missing: added.length === 0 ? context.missing : [...context.missing, ...added] };
}

/** LS2 */
function endOf({ missing, unscheduled }: LogSubscriptionContext): LogEnd {
  const warning = warningOf(missing, unscheduled);
  return warning === null ? { kind: "complete" } : { kind: "incomplete", warning };
}

export const logSubscriptionMachine = setup({
  types: {
    context: {} as LogSubscriptionContext,
    events: {} as LogSubscriptionEvent,
    input: {} as { follow: boolean },
  },
  actions: {
    /** Tells every manager, this one included, which nodes are asked. `close`: what they have sent is enough. */
    announce: effect<{ nodes: LogNodes; close: boolean }>("announce"),
    /** Tells a follower what it will miss. */
    tellMissing: effect<{ reasons: readonly string[] }>("tellMissing"),
    finish: effect<LogEnd>("finish"),
    reportUnexpected: effect("reportUnexpected"),

    select: assign(
      (
        { context },
        { nodes, unscheduled }: { nodes: readonly SelectedNode[]; unscheduled: readonly string[]; exists: boolean },
      ) => ({ ...taken(context, selectNodes(context.nodes, nodes, context.follow)), unscheduled }),
    ),
    hold: assign(({ context }, { held, holder }: { held: readonly HeldNode[]; holder: string }) =>
      taken(context, holdNodes(context.nodes, held, holder)),
    ),
    end: assign(({ context }, ended: { nodeId: string; attempt: number; error: string }) =>
      taken(context, endNode(context.nodes, ended, context.follow)),
    ),
    age: assign(({ context }) => taken(context, ageNodes(context.nodes, context.follow))),
    /** From here on a node that has ended is over. */
    stopFollowing: assign({ follow: false }),
    countClosing: assign({ closingTicks: ({ context }) => context.closingTicks + 1 }),
  },
  guards: {
    /** What does not exist is not waited for. */
    canFollow: ({ context }, { exists }: { exists: boolean }) => context.follow && exists,
    isComplete: ({ context }) => isEveryNodeOver(context.nodes),
    isClosed: ({ context }) => isNobodyHeld(context.nodes) || context.closingTicks > logLimits.closingTicksMax,
    isNothingLeft: (_, { exists }: { exists: boolean }) => !exists,
  },
  delays: { announceInterval: logLimits.announceIntervalMs },
}).createMachine({
  id: "logSubscription",
  context: ({ input }) => ({
    follow: input.follow,
    nodes: {},
    unscheduled: [],
    missing: [],
    news: [],
    closingTicks: 0,
  }),
  initial: "choosing",
  options: { maxIterations: 1_000 },
  on: {
    "follower.left": { target: ".ended", actions: { type: "finish", params: { kind: "left" } } },
    "follower.stalled": {
      target: ".ended",
      actions: { type: "finish", params: ({ event }) => ({ kind: "stalled", limit: event.limit }) },
    },
    "broker.stopped": { target: ".ended", actions: { type: "finish", params: { kind: "stopped" } } },
    "*": { actions: "reportUnexpected" },
  },
  states: {
    choosing: {
      description: "Looking up the selection for the first time.",
      on: {
        "selection.changed": [
          {
            guard: { type: "canFollow", params: ({ event }) => event },
            target: "following",
            actions: { type: "select", params: ({ event }) => event },
          },
          { target: "gathering", actions: ["stopFollowing", { type: "select", params: ({ event }) => event }] },
        ],
      },
    },
    gathering: {
      description: "Collecting existing output; done when each node has sent its own or cannot. LS1, LS2",
      entry: { type: "announce", params: ({ context }) => ({ nodes: context.nodes, close: false }) },
      always: {
        guard: "isComplete",
        target: "ended",
        actions: { type: "finish", params: ({ context }) => endOf(context) },
      },
      on: {
        "nodes.held": { actions: { type: "hold", params: ({ event }) => event } },
        "node.ended": { actions: { type: "end", params: ({ event }) => event } },
      },
      after: { announceInterval: { target: "gathering", reenter: true, actions: "age" } },
    },
    following: {
      description: "Forwarding new output; new tasks of the selection join. LS2, LS3",
      entry: [
        { type: "announce", params: ({ context }) => ({ nodes: context.nodes, close: false }) },
        { type: "tellMissing", params: ({ context }) => ({ reasons: context.news }) },
      ],
      on: {
        "nodes.held": { actions: { type: "hold", params: ({ event }) => event } },
        "node.ended": {
          target: "following",
          reenter: true,
          actions: { type: "end", params: ({ event }) => event },
        },
        "selection.changed": [
          {
            guard: { type: "isNothingLeft", params: ({ event }) => event },
            target: "closing",
            actions: "stopFollowing",
          },
          { target: "following", reenter: true, actions: { type: "select", params: ({ event }) => event } },
        ],
      },
      after: { announceInterval: { target: "following", reenter: true, actions: "age" } },
    },
    closing: {
      description: "The selected objects are gone: waiting a few seconds for the nodes to send what they still have.",
      entry: { type: "announce", params: ({ context }) => ({ nodes: context.nodes, close: true }) },
      always: {
        guard: "isClosed",
        target: "ended",
        actions: { type: "finish", params: ({ context }) => endOf(context) },
      },
      on: {
        "nodes.held": { actions: { type: "hold", params: ({ event }) => event } },
        "node.ended": { actions: { type: "end", params: ({ event }) => event } },
        "selection.changed": {},
      },
      after: { announceInterval: { target: "closing", reenter: true, actions: ["age", "countClosing"] } },
    },
    ended: {
      description: "Nothing more is sent, and the nodes are told.",
      type: "final",
    },
  },
});
