/**
 * One round of the scheduler: its limits and its result.
 *
 * B2: an explanation is sent only if it differs from the task's status and from the last one sent.
 */
import type { GenericResource, Task, VolumeAttachment } from "../../proto/gen/messages.ts";
import type { Tracked } from "./tracked.ts";

export interface Assignment {
  readonly task: Task;
  readonly nodeId: string;
  readonly generic: readonly GenericResource[];
  readonly volumes: readonly VolumeAttachment[];
  /** The task was created for that node. */
  readonly isPreassigned: boolean;
  /** Its record, which knows whether the assignment is in the store yet. */
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
  /** Explanations that replace an earlier one. */
  readonly replacementsMax: number;
  /** After judging this many nodes (about 0.2 µs each) no further group is started, since a round blocks everything else. */
  readonly judgementsMax: number;
}

export interface Round {
  readonly assignments: readonly Assignment[];
  readonly explanations: readonly Explanation[];
  /** A limit stopped the round; another can continue at once. */
  readonly hasMore: boolean;
  /** Some explanations are outdated; replacing them can wait. */
  readonly hasStale: boolean;
}

/** A round in progress. */
export interface RoundDraft {
  readonly now: number;
  readonly limits: RoundLimits;
  readonly assignments: Assignment[];
  readonly explanations: Explanation[];
  replacements: number;
  judgements: number;
}

export function isFull({ limits, assignments, explanations }: RoundDraft): boolean {
  return assignments.length + explanations.length >= limits.operationsMax;
}

/** B2. False if the explanation must wait because it only replaces another one, and this round has replaced enough. */
export function report(tracked: Tracked, text: string, round: RoundDraft): boolean {
  const before = tracked.reported ?? tracked.task.status?.err ?? "";
  if (before === text) return true;
  if (before !== "") {
    if (round.replacements <= 0) return false;
    round.replacements -= 1;
  }
  tracked.reported = text;
  round.explanations.push({ task: tracked.task, text });
  return true;
}
