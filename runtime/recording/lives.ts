/** The actors of the time line: one life from each start of an actor to its end. */
import type { Place, Segment } from "./segment.ts";

export interface Life {
  readonly process: string;
  readonly actor: string;
  readonly machine: string;
  /** 0: unknown. */
  readonly startedAtMs: number;
  /** Where its newest state is. */
  place: Place | null;
  /** Its newest states, as `StepScan.states`; null: unknown. */
  states: string | null;
  sinceMs: number;
  /** Number and time of its newest step. */
  steps: number;
  stepMs: number;
  /** Its newest context, encoded with its tag, if no step has it. */
  toldContext: Uint8Array | null;
  /** The step that has its newest context, in this segment; null: no step. */
  contextSegment: Segment | null;
  contextStep: number;
}

export function createLife(fields: Pick<Life, "process" | "actor" | "machine" | "startedAtMs">): Life {
  return {
    ...fields,
    place: null,
    states: null,
    sinceMs: 0,
    steps: 0,
    stepMs: 0,
    toldContext: null,
    contextSegment: null,
    contextStep: 0,
  };
}
