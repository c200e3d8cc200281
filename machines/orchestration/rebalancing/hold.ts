/**
 * The conditions that hold all rebalancing moves of the cluster. Pure: derived from the stored objects and from reports to the
 * leader, so that a new leader decides like the old one.
 *
 * R1: nothing moves during an incident: while a node is not READY, or was not until recently; while a manager misses
 *     nodes or holds its verdicts; while a rollout of the service is in progress, or one of its tasks failed recently.
 * R2: nothing moves before the cluster has settled, and no task moves that has not run for the settling time.
 */
import { isReady } from "../../node.ts";
import { lazyNodeNames } from "../../node-names.ts";
import { NodeStatus_State, type Node } from "../../../proto/gen/messages.ts";
import { leftOf, type LogTimes } from "../../elapsed.ts";
import type { RebalanceSettings } from "./settings.ts";

/** Why nothing moves. `untilMs`: when to check again even if nothing changes; null: a change will come first. */
export interface Hold {
  readonly reason: string;
  readonly untilMs: number | null;
}

/** The end of the span after `timeOf`; null: it has passed. */
export function untilAfter(timeOf: number, spanMs: number, nowMs: number): number | null {
  const leftMs = leftOf(timeOf, spanMs, nowMs);
  return leftMs > 0 ? nowMs + leftMs : null;
}

export interface ClusterView {
  readonly nowMs: number;
  readonly times: LogTimes;
  readonly nodes: readonly Node[];
  /** The last incident that this leader knows of, in milliseconds since the epoch; 0: none. */
  readonly troubleMs: number;
  /** Managers' current reports about missing nodes, as sentences. */
  readonly doubts: readonly string[];
}

/** R1: the current problem in the cluster. */
function troubleOf({ nodes, nowMs, times }: ClusterView, quietMs: number): Hold | null {
  let until: Hold | null = null;
  const nameOf = lazyNodeNames(() => nodes);
  for (const node of nodes) {
    // A node that was accepted but never registered does not count.
    if (node.description === null) continue;
    const state = node.status?.state ?? NodeStatus_State.UNKNOWN;
    if (state === NodeStatus_State.READY) continue;
    const name = nameOf(node.id);
    if (state !== NodeStatus_State.DOWN) {
      const word = state === NodeStatus_State.UNKNOWN ? "unknown" : "disconnected";
      return { reason: `node ${name} is ${word}`, untilMs: null };
    }
    // A node that has been DOWN for long does not count: its tasks run elsewhere.
    const untilMs = untilAfter(times.changedMs(node), quietMs, nowMs);
    if (untilMs !== null && untilMs > (until?.untilMs ?? 0)) until = { reason: `node ${name} is down`, untilMs };
  }
  return until;
}

/** The newest change of any node, which a new leader treats as the last incident. */
export function lastNodeChangeMs(nodes: Iterable<Node>, times: LogTimes): number {
  let last = 0;
  for (const node of nodes) last = Math.max(last, times.changedMs(node));
  return last;
}

/** R1: the incident that holds all moves; null: none. */
export function incidentOf(view: ClusterView, settings: RebalanceSettings): Hold | null {
  const [doubt] = view.doubts;
  if (doubt !== undefined) return { reason: doubt, untilMs: null };
  const trouble = troubleOf(view, settings.quietMs);
  if (trouble !== null) return trouble;
  const untilMs = untilAfter(view.troubleMs, settings.quietMs, view.nowMs);
  return untilMs === null ? null : { reason: "a node was missing until recently", untilMs };
}

/** R2: the newest change of a node, which all moves wait for; null: the cluster has settled. */
export function settlingOf(view: ClusterView, settings: RebalanceSettings): Hold | null {
  const { times } = view;
  let found: Hold | null = null;
  const nameOf = lazyNodeNames(() => view.nodes);
  for (const node of view.nodes) {
    if (node.description === null || !isReady(node)) continue;
    const untilMs = untilAfter(times.changedMs(node), settings.settleMs, view.nowMs);
    if (untilMs === null || untilMs <= (found?.untilMs ?? 0)) continue;
    found = { reason: `node ${nameOf(node.id)} joined or changed recently`, untilMs };
  }
  return found;
}
