/**
 * One round of the scheduler: what it may do, and what came of it.
 *
 * B2: an explanation goes out only when it differs from what the task's status says or was last told to say.
 */
import type { GenericResource, Task, VolumeAttachment } from "../../proto/gen/messages.ts";
import type { Tracked } from "./tracked.ts";

export interface Assignment {
  readonly task: Task;
  readonly nodeId: string;
  readonly generic: readonly GenericResource[];
  readonly volumes: readonly VolumeAttachment[];
  /** The task was made for that node. */
  readonly isPreassigned: boolean;
  /** Says whether the store has it yet. */
  readonly tracked: Tracked;
}

export interface Explanation {
  readonly task: Task;
  /** For Status.err. */
  readonly text: string;
}

export interface RoundLimits {
  /** Assignments and explanations together. */
  readonly operationsMax: number;
  /** Explanations that replace another one. */
  readonly retellingsMax: number;
  /** After so many looks at a node for a group (about 0.2 µs each) no further group is begun: a round holds up everything else. */
  readonly judgementsMax: number;
}

export interface Round {
  readonly assignments: readonly Assignment[];
  readonly explanations: readonly Explanation[];
  /** Work is left that a limit stopped; another round can go on at once. */
  readonly hasMore: boolean;
  /** Explanations have changed that may wait. */
  readonly hasStale: boolean;
}

/** A round under way. */
export interface RoundDraft {
  readonly now: number;
  readonly limits: RoundLimits;
  readonly assignments: Assignment[];
  readonly explanations: Explanation[];
  retellings: number;
  judgements: number;
}

export function isFull({ limits, assignments, explanations }: RoundDraft): boolean {
  return assignments.length + explanations.length >= limits.operationsMax;
}

/** B2. False when it must wait: it only replaces another explanation, and this round has replaced enough. */
export function tell(tracked: Tracked, text: string, round: RoundDraft): boolean {
  const before = tracked.told ?? tracked.task.status?.err ?? "";
  if (before === text) return true;
  if (before !== "") {
    if (round.retellings <= 0) return false;
    round.retellings -= 1;
  }
  tracked.told = text;
  round.explanations.push({ task: tracked.task, text });
  return true;
}
