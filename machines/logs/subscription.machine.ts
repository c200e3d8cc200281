/**
 * One log subscription, on the manager that accepted it: which nodes are asked, which have sent everything, and the final
 * status. No output passes through here.
 *
 *   choosing ──▶ gathering ──▶ ended          (what there is)
 *           └──▶ following ──▶ closing ──▶ ended   (what comes, until the follower leaves or nothing is left to follow)
 *
 * LS1: a subscription without `follow` ends once every selected node has sent all its output, or is known to be unable to.
 * LS2: missing output is reported at the end; to a follower, at once.
 * LS3: a follower that does not read is disconnected, so that it does not block the nodes' connections forever.
 * LS4: a lost node is asked again with the next announcement, not at once: one whose stream breaks each time costs no more.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";
import {
  ageNodes,
  endNode,
  holdNodes,
  isEveryNodeOver,
  isNobodyExpected,
  leaveNodes,
  logLimits,
  selectNodes,
  warningOf,
  type HeldNode,
  type LogNodes,
  type LogStep,
} from "./nodes.ts";
import type { SelectedNode } from "./selection.ts";

export type LogSubscriptionEvent =
  | {
      readonly type: "selection.changed";
      readonly nodes: readonly SelectedNode[];
      readonly unscheduled: readonly string[];
      readonly exists: boolean;
    }
  /** A manager reports that it has notified these nodes. */
  | { readonly type: "nodes.held"; readonly held: readonly HeldNode[]; readonly holder: string }
  /** `error` is empty if all output arrived. */
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

interface LogSubscriptionContext {
  readonly follow: boolean;
  readonly nodes: LogNodes;
  readonly unscheduled: readonly string[];
  /** Reasons without duplicates, in the order in which they arose. */
  readonly missing: readonly string[];
  /** The reasons added by the last step. */
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

export const logSubscriptionMachine = chart({
  types: {
    context: {} as LogSubscriptionContext,
    events: {} as LogSubscriptionEvent,
    input: {} as { follow: boolean },
  },
  effects: {
    /**
     * Announces to every manager, including this one, which nodes are asked. `close`: nodes may stop once they have sent what
     * they have.
     */
    announce: effect<{ nodes: LogNodes; close: boolean }>(),
    /** Reports to a follower what it will miss. */
    tellMissing: effect<{ reasons: readonly string[] }>(),
    finish: effect<LogEnd>(),
  },
  actions: {
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
    /** From now on, a node that has ended is finished. */
    stopFollowing: assign({ follow: false }),
    leave: assign(({ context }) => taken(context, leaveNodes(context.nodes))),
    countClosing: assign({ closingTicks: ({ context }) => context.closingTicks + 1 }),
  },
  guards: {
    /** Objects that do not exist are not waited for. */
    canFollow: ({ context }, { exists }: { exists: boolean }) => context.follow && exists,
    isComplete: ({ context }) => isEveryNodeOver(context.nodes),
    isClosed: ({ context }) => isNobodyExpected(context.nodes, context.closingTicks),
    isNothingLeft: (_, { exists }: { exists: boolean }) => !exists,
  },
  delays: { announceInterval: logLimits.announceIntervalMs },
  shows: {
    context: ["follow", "nodes", "unscheduled", "closingTicks"],
    events: ["nodes", "unscheduled", "exists", "held", "holder", "nodeId", "attempt", "limit"],
  },
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
  on: {
    "follower.left": { target: ".ended", actions: { type: "finish", params: { kind: "left" } } },
    "follower.stalled": {
      target: ".ended",
      actions: { type: "finish", params: ({ event }) => ({ kind: "stalled", limit: event.limit }) },
    },
    "broker.stopped": { target: ".ended", actions: { type: "finish", params: { kind: "stopped" } } },
  },
  states: {
    choosing: {
      description: "Looking up the selection for the first time.",
      meta: { waitingFor: "the first selection", wokenBy: { "selection.changed": "the selected tasks and nodes" } },
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
      meta: {
        waitingFor: "the output that each node has kept",
        wokenBy: {
          "nodes.held": "nodes that hold such output",
          "node.ended": "the end of a node's output",
          announceInterval: "the next announcement to the nodes",
        },
      },
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
      description: "Forwarding new output; new tasks of the selection join. LS2, LS3, LS4",
      meta: {
        waitingFor: "new output",
        wokenBy: {
          "selection.changed": "a changed selection",
          "node.ended": "the end of a node's output",
          announceInterval: "the next announcement to the nodes",
        },
      },
      entry: [
        { type: "announce", params: ({ context }) => ({ nodes: context.nodes, close: false }) },
        { type: "tellMissing", params: ({ context }) => ({ reasons: context.news }) },
      ],
      on: {
        "nodes.held": { actions: { type: "hold", params: ({ event }) => event } },
        "node.ended": {
          actions: [
            { type: "end", params: ({ event }) => event },
            { type: "tellMissing", params: ({ context }) => ({ reasons: context.news }) },
          ],
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
      description: "The selected objects are gone; the nodes get a few seconds to send the rest, or are reported. LS2",
      meta: {
        waitingFor: "the nodes, to send what they still have",
        wokenBy: { "node.ended": "the end of a node's output", announceInterval: "the next announcement to the nodes" },
      },
      entry: { type: "announce", params: ({ context }) => ({ nodes: context.nodes, close: true }) },
      always: {
        guard: "isClosed",
        target: "ended",
        actions: ["leave", { type: "finish", params: ({ context }) => endOf(context) }],
      },
      ignore: ["selection.changed"],
      on: {
        "nodes.held": { actions: { type: "hold", params: ({ event }) => event } },
        "node.ended": { actions: { type: "end", params: ({ event }) => event } },
      },
      after: { announceInterval: { target: "closing", reenter: true, actions: ["age", "countClosing"] } },
    },
    ended: {
      description: "The subscription is over, and the nodes are notified.",
      type: "final",
    },
  },
});
