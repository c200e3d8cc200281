/**
 * What keeps every task of the cluster where it is. Pure: everything is read from the stored objects and from what the
 * leader has heard, so that a new leader goes on as the old one would have.
 *
 * R1: nothing moves during an incident: while a node is not READY, or was not a short time ago; while a manager misses
 *     nodes or holds its verdicts; while a rollout of the service is under way, or one of its tasks failed a short time ago.
 * R2: nothing moves before the cluster has settled, and no task that has not run for that long.
 */
import { lazyNodeNames } from "../../node-names.ts";
import { NodeStatus_State, type Node } from "../../../proto/gen/messages.ts";
import { leftOf, stampedTimes, type LogTimes } from "../../elapsed.ts";
import type { RebalanceSettings } from "./settings.ts";

/** Why nothing moves. `untilMs`: when to look again even if nothing happens; null: something will happen first. */
export interface Hold {
  readonly reason: string;
  readonly untilMs: number | null;
}

/** When the span after `timeOf` is over; null: it is. */
export function untilAfter(timeOf: number, spanMs: number, nowMs: number): number | null {
  const leftMs = leftOf(timeOf, spanMs, nowMs);
  return leftMs > 0 ? nowMs + leftMs : null;
}

export interface ClusterView {
  readonly nowMs: number;
  /** Absent: the log's own times are taken at their word. */
  readonly times?: LogTimes | undefined;
  readonly nodes: readonly Node[];
  /** When there last was an incident as far as this leader knows, in milliseconds since the epoch; 0: never. */
  readonly troubleMs: number;
  /** What managers say of nodes that they miss now, in sentences. */
  readonly doubts: readonly string[];
}

/** R1: what is wrong in the cluster now. */
function troubleOf({ nodes, nowMs, times = stampedTimes }: ClusterView, quietMs: number): Hold | null {
  let until: Hold | null = null;
  const nameOf = lazyNodeNames(() => nodes);
  for (const node of nodes) {
    // One that was let in and never came is no loss.
    if (node.description === null) continue;
    const state = node.status?.state ?? NodeStatus_State.UNKNOWN;
    if (state === NodeStatus_State.READY) continue;
    const name = nameOf(node.id);
    if (state !== NodeStatus_State.DOWN) {
      const word = state === NodeStatus_State.UNKNOWN ? "unknown" : "disconnected";
      return { reason: `node ${name} is ${word}`, untilMs: null };
    }
    // One that has been DOWN for long is known to be gone; its tasks run elsewhere.
    const untilMs = untilAfter(times.changedMs(node), quietMs, nowMs);
    if (untilMs !== null && untilMs > (until?.untilMs ?? 0)) until = { reason: `node ${name} is down`, untilMs };
  }
  return until;
}

/** When the youngest change of a node was: what a leader that has just begun takes for the last incident. */
export function lastNodeChangeMs(nodes: Iterable<Node>, times: LogTimes = stampedTimes): number {
  let last = 0;
  for (const node of nodes) last = Math.max(last, times.changedMs(node));
  return last;
}

/** R1: the incident that keeps everything where it is; null: none. */
export function incidentOf(view: ClusterView, settings: RebalanceSettings): Hold | null {
  const [doubt] = view.doubts;
  if (doubt !== undefined) return { reason: doubt, untilMs: null };
  const trouble = troubleOf(view, settings.quietMs);
  if (trouble !== null) return trouble;
  const untilMs = untilAfter(view.troubleMs, settings.quietMs, view.nowMs);
  return untilMs === null ? null : { reason: "a node was missing a short time ago", untilMs };
}

/** R2: the youngest change of a node that everything waits for; null: the cluster has settled. */
export function settlingOf(view: ClusterView, settings: RebalanceSettings): Hold | null {
  const { times = stampedTimes } = view;
  let found: Hold | null = null;
  const nameOf = lazyNodeNames(() => view.nodes);
  for (const node of view.nodes) {
    if (node.description === null || node.status?.state !== NodeStatus_State.READY) continue;
    const untilMs = untilAfter(times.changedMs(node), settings.settleMs, view.nowMs);
    if (untilMs === null || untilMs <= (found?.untilMs ?? 0)) continue;
    found = { reason: `node ${nameOf(node.id)} joined or changed a short time ago`, untilMs };
  }
  return found;
}
