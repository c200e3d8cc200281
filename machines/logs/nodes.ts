/**
 * The nodes of one log subscription, on its home manager: pure steps for `subscription.machine.ts`.
 *
 * LN1: once a node has ended or is lost, everything from an earlier attempt is ignored.
 * LN3: an attempt belongs to one run of one manager: a node that another manager asked again would repeat its output.
 * LN2: without `follow`, a node is asked once; with it, a lost node is asked again, with the next attempt.
 * LN4: a follower gets one report that a node is not available for each absence.
 */
import type { SelectedNode } from "./selection.ts";

export const logLimits = {
  /** Milliseconds between two announcements: for this long a newly started manager may not know a subscription. */
  announceIntervalMs: 1_000,
  /** Unanswered announcements after which a node is unavailable, or its manager is gone: two may get lost. */
  silentTicksMax: 3,
  /** How many announcements nodes get to send the rest after the followed service was removed; a slower one is reported. */
  closingTicksMax: 5,
} as const;

interface LogNode {
  /** `asked`: no manager has confirmed. `held`: one has. `ended`: all output has arrived. `lost`: some has not. */
  readonly phase: "asked" | "held" | "ended" | "lost";
  readonly attempt: number;
  /** Announcements since the last answer. */
  readonly silentTicks: number;
  /** The run of the manager that answered this attempt first; empty before. LN3 */
  readonly holder: string;
  /** A follower knows that the node is not available; reset by the node's answer. LN4 */
  readonly isReported: boolean;
}

export type LogNodes = Readonly<Record<string, LogNode>>;

export interface LogStep {
  readonly nodes: LogNodes;
  /** Messages about logs that are missing from now on, in SwarmKit's words. */
  readonly missing: readonly string[];
}

const nothing: readonly string[] = [];
const asked: LogNode = { phase: "asked", attempt: 1, silentTicks: 0, holder: "", isReported: false };

const unavailable = (id: string): string => `node ${id} is not available`;
export const disconnected = (id: string): string => `node ${id} disconnected unexpectedly`;
export const unfinished = (id: string): string => `node ${id} has not sent all its output`;
export const unreadable = (id: string, taskId: string): string => `node ${id} cannot read the output of task ${taskId}`;
export const rejected = (id: string, why: string): string => `node ${id} sent output that was rejected: ${why}`;

/** New nodes are asked; known ones keep their state. */
export function selectNodes(before: LogNodes, selected: readonly SelectedNode[], follow: boolean): LogStep {
  let nodes = before;
  const missing: string[] = [];
  for (const { id, isAvailable } of selected) {
    if (nodes[id] !== undefined) continue;
    const phase = isAvailable || follow ? "asked" : "lost";
    nodes = { ...nodes, [id]: { ...asked, phase, isReported: !isAvailable } };
    if (!isAvailable) missing.push(unavailable(id));
  }
  return { nodes, missing };
}

export interface HeldNode {
  readonly nodeId: string;
  readonly attempt: number;
}

/** Everything that one manager holds, at once: a subscription may have a thousand nodes. LN1, LN3 */
export function holdNodes(before: LogNodes, held: readonly HeldNode[], holder: string): LogStep {
  const nodes: Record<string, LogNode> = { ...before };
  for (const { nodeId, attempt } of held) {
    const node = nodes[nodeId];
    if (node === undefined || node.attempt !== attempt || isOver(node)) continue;
    if (node.holder === "" || node.holder === holder)
      nodes[nodeId] = { phase: "held", attempt, silentTicks: 0, holder, isReported: false };
  }
  return { nodes, missing: nothing };
}

/** `error`: why the node's output is incomplete; empty if it is complete. LN1, LN2 */
export function endNode(
  before: LogNodes,
  { nodeId, attempt, error }: { readonly nodeId: string; readonly attempt: number; readonly error: string },
  follow: boolean,
): LogStep {
  const node = before[nodeId];
  if (node === undefined || node.attempt !== attempt || isOver(node)) return { nodes: before, missing: nothing };
  if (error === "") {
    // A followed node without output may get another task later; it keeps listening.
    const phase = follow ? "held" : "ended";
    return { nodes: { ...before, [nodeId]: { ...node, phase, silentTicks: 0 } }, missing: nothing };
  }
  return { nodes: { ...before, [nodeId]: lost(node, follow) }, missing: [error] };
}

/** Counts one more announcement. */
export function ageNodes(before: LogNodes, follow: boolean): LogStep {
  const nodes: Record<string, LogNode> = {};
  const missing: string[] = [];
  for (const [id, node] of Object.entries(before)) {
    const silentTicks = node.silentTicks + 1;
    if (isOver(node)) nodes[id] = node;
    else if (node.phase === "held" && silentTicks > logLimits.silentTicksMax) {
      nodes[id] = lost(node, follow);
      missing.push(disconnected(id));
    } else if (node.phase === "asked" && silentTicks > logLimits.silentTicksMax) {
      // A follower keeps asking. LN4
      const phase = follow ? "asked" : "lost";
      nodes[id] = { ...node, phase, silentTicks: logLimits.silentTicksMax + 1, isReported: true };
      if (!node.isReported) missing.push(unavailable(id));
    } else nodes[id] = { ...node, silentTicks };
  }
  return { nodes, missing };
}

function lost(node: LogNode, follow: boolean): LogNode {
  return follow ? { ...asked, attempt: node.attempt + 1 } : { ...node, phase: "lost", silentTicks: 0 };
}

function isOver({ phase }: LogNode): boolean {
  return phase === "ended" || phase === "lost";
}

export function isEveryNodeOver(nodes: LogNodes): boolean {
  return Object.values(nodes).every(isOver);
}

/** While closing: one announcement is enough for a node that was just asked, and none for one that is not available. */
export function isNobodyExpected(nodes: LogNodes, closingTicks: number): boolean {
  if (closingTicks > logLimits.closingTicksMax) return true;
  return Object.values(nodes).every(
    ({ isReported, phase }) => phase !== "held" && (phase !== "asked" || isReported || closingTicks > 0),
  );
}

/** At the end of closing: a node that has not ended may still have output. */
export function leaveNodes(nodes: LogNodes): LogStep {
  const open = Object.entries(nodes).filter(([, node]) => !isOver(node) && !node.isReported);
  return { nodes, missing: open.map(([id]) => unfinished(id)) };
}

/** SwarmKit's text; null if nothing is missing. */
export function warningOf(missing: readonly string[], unscheduled: readonly string[]): string | null {
  const reasons = [...missing, ...unscheduled.map((id) => `task ${id} has not been scheduled`)];
  if (reasons.length === 0) return null;
  const warning = "warning: incomplete log stream. some logs could not be retrieved for the following reasons: ";
  return warning + reasons.join(", ");
}
