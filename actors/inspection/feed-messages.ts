/** Messages of the feed, made from what the host shows. Contexts and events have only the fields that their chart shows. */
import type { Shows } from "../../machines/chart.ts";
import { shown } from "../../machines/shown.ts";
import { ActorState, ActorStatus, ActorStep, type ArmedTimer } from "../../proto/gen/messages.ts";
import type { ObservedActor, ObservedStatus, ObservedStep } from "../../runtime/observation/step.ts";

const statuses: Readonly<Record<ObservedStatus, ActorStatus>> = {
  active: ActorStatus.ACTOR_ACTIVE,
  done: ActorStatus.ACTOR_DONE,
  stopped: ActorStatus.ACTOR_STOPPED,
  error: ActorStatus.ACTOR_FAILED,
};

/** In place of fields that cannot be written, or do not fit a message, so that the rest of the step is shown. */
const unreadable = `{"$cut":true}`;

const nothing: Shows = { context: [], events: [] };

const showsOf = (machine: ObservedActor["machine"]): Shows =>
  (machine.schemas as { readonly shows: Shows | null }).shows ?? nothing;

function fieldsOf(from: object, paths: readonly string[]): string {
  if (paths.length === 0) return "{}";
  try {
    return shown(from, paths);
  } catch {
    return unreadable;
  }
}

/** Whether a shown field of the context is another than before the step. */
export function changesContext({ machine, context, contextBefore }: ObservedStep): boolean {
  if (context === contextBefore) return false;
  if (contextBefore === null) return true;
  const [now, before] = [context, contextBefore] as readonly Readonly<Record<string, unknown>>[];
  for (const path of showsOf(machine).context) {
    const dot = path.indexOf(".");
    const key = dot === -1 ? path : path.slice(0, dot);
    if (now?.[key] !== before?.[key]) return true;
  }
  return false;
}

export function stateMessage(actor: ObservedActor): ActorState {
  return ActorState.create({
    actor: actor.id,
    machine: actor.machine.id,
    states: actor.states,
    status: statuses[actor.status],
    startedAtMs: actor.startedAtMs,
    sinceMs: actor.sinceMs,
    context: fieldsOf(actor.context, showsOf(actor.machine).context),
    timers: actor.timers,
    steps: actor.steps,
    event: actor.lastEvent,
  });
}

/** `skipped` steps of the actor were left out before it; `withContext`: those or this one changed the context. */
export const stepMessage = (step: ObservedStep, withContext: boolean, skipped: number): ActorStep =>
  ActorStep.create(stepFields(step, withContext, skipped));

/** A message to be encoded at once: a plain object costs a fraction of `create`. */
export function stepFields(step: ObservedStep, withContext: boolean, skipped: number): ActorStep {
  const { events, context } = showsOf(step.machine);
  const { call, linked, linkedMore, traceparent } = step.cause;
  const [, traceId = "", spanId = ""] = traceparent === "" ? [] : traceparent.split("-");
  return {
    actor: step.id,
    machine: step.machine.id,
    number: step.steps,
    atMs: step.atMs,
    event: step.event.type,
    fields: fieldsOf(step.event, events),
    states: step.states,
    status: statuses[step.status],
    transitions: step.transitions,
    guards: step.guards,
    effects: step.effects,
    context: withContext ? fieldsOf(step.context, context) : "",
    timers: step.timers,
    traceId,
    spanId,
    unexpected: step.unexpected,
    source: step.source,
    skipped,
    linkedTraceIds: linked.length === 0 ? noNames : linked.map((each) => each.split("-", 2)[1] ?? ""),
    linkedMore,
    call: step.source === "" ? call : "",
  };
}

const noNames: readonly string[] = [];

/** UTF-8 of one character of a name, at most. */
const charBytes = 3;
/** Numbers, tags and lengths of a step or a state, and of each of its lists' entries, at most. */
const frameBytes = 128;
const entryBytes = 32;

const namesBytes = (names: readonly string[]): number =>
  names.reduce((sum, name) => sum + entryBytes + name.length * charBytes, 0);

const timersBytes = (timers: readonly ArmedTimer[]): number =>
  timers.reduce((sum, { delay, state }) => sum + 2 * entryBytes + (delay.length + state.length) * charBytes, 0);

/** At least the bytes of the encoded step, without encoding it. */
export function stepBytes(step: ActorStep): number {
  const { actor, machine, event, source, traceId, spanId, call } = step;
  return (
    frameBytes +
    (actor.length + machine.length + event.length + source.length + traceId.length + spanId.length + call.length) *
      charBytes +
    Buffer.byteLength(step.fields) +
    Buffer.byteLength(step.context) +
    namesBytes(step.states) +
    namesBytes(step.transitions) +
    namesBytes(step.guards) +
    namesBytes(step.effects) +
    namesBytes(step.linkedTraceIds) +
    timersBytes(step.timers)
  );
}

/** Likewise of a state. */
export function stateBytes({ actor, machine, states, context, timers, event }: ActorState): number {
  const names = (actor.length + machine.length + event.length) * charBytes;
  return frameBytes + names + Buffer.byteLength(context) + namesBytes(states) + timersBytes(timers);
}

/** The step without its context, then also without its fields, if it is larger than `bytesMax`. */
export function fittingStep(step: ActorStep, bytesMax: number): ActorStep {
  if (stepBytes(step) <= bytesMax) return step;
  const small = ActorStep.patch(step, { context: unreadable });
  return stepBytes(small) <= bytesMax ? small : ActorStep.patch(small, { fields: unreadable });
}

/** The state without its context, if it is larger than `bytesMax`. */
export function fittingState(state: ActorState, bytesMax: number): ActorState {
  return stateBytes(state) <= bytesMax ? state : ActorState.patch(state, { context: unreadable });
}
