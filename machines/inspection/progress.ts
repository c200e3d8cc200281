/**
 * How far a listener is in one process's feed, and what to do with the next message.
 *
 * FP1: a listener gets no step without the state before it: what follows a gap waits for a snapshot.
 */
import type { ActorFeed } from "../../proto/gen/messages.ts";

export interface FeedProgress {
  /** The outlet that the process's feed comes through: within it, sequences only increase. */
  readonly outlet: string;
  /** Number of the newest message. */
  readonly sequence: number;
  /** False after a gap, until a snapshot begins. */
  readonly isWhole: boolean;
}

interface FeedVerdict {
  /** `pass`: to the listener. `drop`: late, or useless. `gap`: useless, and a snapshot must be asked for. */
  readonly kind: "pass" | "drop" | "gap";
  /** Afterwards; null: the process is lost. */
  readonly progress: FeedProgress | null;
}

export function follow(
  before: FeedProgress | null,
  outlet: string,
  { lost, sequence, snapshot }: Pick<ActorFeed, "lost" | "sequence" | "snapshot">,
): FeedVerdict {
  const isSame = before?.outlet === outlet;
  // A manager that a node has left says so too late.
  if (lost !== "") return before !== null && !isSame ? drop(before) : { kind: "pass", progress: null };
  if (isSame && sequence <= before.sequence) return drop(before);
  if (snapshot?.begins === true) return { kind: "pass", progress: { outlet, sequence, isWhole: true } };
  const after = { outlet, sequence, isWhole: false };
  if (!isSame) return { kind: "gap", progress: after };
  if (!before.isWhole) return drop(after);
  if (sequence === before.sequence + 1) return { kind: "pass", progress: { ...after, isWhole: true } };
  return { kind: "gap", progress: after };
}

/**
 * Whether a snapshot must be asked for: messages up to `sequence` should have arrived, and were lost at the end of the feed, or
 * the listener follows the process through another outlet.
 */
export function isBehind(own: FeedProgress | null, outlet: string, sequence: number): boolean {
  if (sequence === 0) return false;
  return own === null || own.outlet !== outlet || !own.isWhole || own.sequence < sequence;
}

function drop(progress: FeedProgress): FeedVerdict {
  return { kind: "drop", progress };
}
