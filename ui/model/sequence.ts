/** The messages of one trace between actors, as a sequence diagram has them. */
import type { Step } from "../../proto/feed/actors.ts";

export interface Message {
  /** `process/actor`; `outside` if the event came from no actor. */
  readonly from: string;
  readonly to: string;
  readonly event: string;
  readonly states: readonly string[];
  readonly atMs: number;
  readonly process: string;
  readonly actor: string;
  readonly number: number;
}

export interface Sequence {
  /** In the order of their first message. */
  readonly lanes: readonly string[];
  readonly messages: readonly Message[];
}

export const outside = "outside";

/** Steps of a trace in the order of their times; those at the same time stay in the order in which they arrived. */
export function sequenceOf(steps: Iterable<Step>, trace: string): Sequence {
  const messages: Message[] = [];
  for (const { process, step } of steps) {
    if (step.traceId !== trace) continue;
    messages.push({
      from: step.source === "" ? outside : `${process} ${step.source}`,
      to: `${process} ${step.actor}`,
      event: step.event,
      states: step.states,
      atMs: step.atMs,
      process,
      actor: step.actor,
      number: step.number,
    });
  }
  messages.sort((a, b) => a.atMs - b.atMs);
  return { lanes: [...new Set(messages.flatMap(({ from, to }) => [from, to]))], messages };
}

export interface TraceSummary {
  readonly trace: string;
  readonly steps: number;
  readonly first: Step;
}

/** The traces of the given steps, newest first. */
export function tracesOf(steps: readonly Step[], max: number): readonly TraceSummary[] {
  const found = new Map<string, { trace: string; steps: number; first: Step }>();
  for (const each of steps) {
    const { traceId } = each.step;
    if (traceId === "") continue;
    const known = found.get(traceId);
    if (known === undefined) found.set(traceId, { trace: traceId, steps: 1, first: each });
    else known.steps += 1;
  }
  return [...found.values()].reverse().slice(0, max);
}
