/** The messages of one trace between actors, as a sequence diagram has them. */
import type { ActorStep, RecordedSpan } from "../../proto/gen/page.ts";

/** A step that the page has seen itself, or a `TimelineStep`. */
export interface Traced {
  /** As `TimelineStep.index`; missing if the page has seen it itself. */
  readonly index?: number;
  readonly process: string;
  readonly step: ActorStep | null;
  /** The span in which the event was sent, if it is known. */
  readonly spans?: readonly RecordedSpan[];
}

export interface Message {
  /**
   * `process actor`; for an event from no actor `process call`, such as a call at an edge or a span, or `outside` if that is not
   * known. A timer's event comes from its own actor.
   */
  readonly from: string;
  readonly to: string;
  readonly event: string;
  readonly states: readonly string[];
  readonly atMs: number;
  readonly process: string;
  readonly actor: string;
  readonly number: number;
  /** 0: unknown. */
  readonly index: number;
  /** Number of other traces that the event serves together with this one. */
  readonly others: number;
}

const tracesIn = ({ traceId, linkedTraceIds }: ActorStep): readonly string[] =>
  traceId === "" ? linkedTraceIds : [traceId];

export interface Sequence {
  /** In the order of their first message. */
  readonly lanes: readonly string[];
  readonly messages: readonly Message[];
}

export const outside = "outside";

/** The messages of a trace in the order of their times, each once; those at the same time stay in the given order. */
export function sequenceOf(steps: Iterable<Traced>, trace: string): Sequence {
  const found = new Map<string, Message>();
  for (const { index = 0, process, step, spans = [] } of steps) {
    if (step === null || !tracesIn(step).includes(trace)) continue;
    // An actor that was started again counts from 1 again.
    const key = `${process} ${step.actor} ${step.number} ${step.atMs}`;
    if (found.has(key)) continue;
    found.set(key, {
      from: senderOf(process, step, spans),
      to: `${process} ${step.actor}`,
      event: step.event,
      states: step.states,
      atMs: step.atMs,
      process,
      actor: step.actor,
      number: step.number,
      index,
      others: step.traceId === trace ? 0 : step.linkedTraceIds.length - 1 + step.linkedMore,
    });
  }
  const messages = [...found.values()].sort((a, b) => a.atMs - b.atMs);
  return { lanes: [...new Set(messages.flatMap(({ from, to }) => [from, to]))], messages };
}

function senderOf(process: string, { actor, call, event, source }: ActorStep, [span]: readonly RecordedSpan[]): string {
  if (source !== "") return `${process} ${source}`;
  if (event.startsWith("xstate.after.")) return `${process} ${actor}`;
  if (span !== undefined) return `${span.process} ${span.name}`;
  return call === "" ? outside : `${process} ${call}`;
}

interface TraceSummary {
  readonly trace: string;
  readonly steps: number;
  readonly process: string;
  readonly first: ActorStep;
}

/** The traces of the given steps, the one that began last first. */
export function tracesOf(steps: Iterable<Traced>, max: number): readonly TraceSummary[] {
  const found = new Map<string, { trace: string; steps: number; process: string; first: ActorStep }>();
  const seen = new Set<string>();
  for (const { process, step } of steps) {
    if (step === null) continue;
    const key = `${process} ${step.actor} ${step.number} ${step.atMs}`;
    if (seen.has(key)) continue;
    seen.add(key);
    for (const trace of tracesIn(step)) {
      const known = found.get(trace);
      if (known === undefined) found.set(trace, { trace, steps: 1, process, first: step });
      else {
        known.steps += 1;
        if (step.atMs < known.first.atMs) [known.first, known.process] = [step, process];
      }
    }
  }
  return [...found.values()].toSorted((a, b) => b.first.atMs - a.first.atMs).slice(0, max);
}
