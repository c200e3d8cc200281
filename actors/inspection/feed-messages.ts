/** Messages of the feed, made from what the host shows. Contexts and events have only the fields that their chart shows. */
import type { Shows } from "../../machines/chart.ts";
import { shown } from "../../machines/shown.ts";
import { ActorState, ActorStatus, ActorStep, ArmedTimer } from "../../proto/gen/messages.ts";
import type { ObservedActor, ObservedStatus, ObservedStep, ObservedTimer } from "../../runtime/observation/step.ts";

const statuses: Readonly<Record<ObservedStatus, ActorStatus>> = {
  active: ActorStatus.ACTOR_ACTIVE,
  done: ActorStatus.ACTOR_DONE,
  stopped: ActorStatus.ACTOR_STOPPED,
  error: ActorStatus.ACTOR_FAILED,
};

/** In place of fields that cannot be written, so that the rest of the step is shown. */
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

/** Lists of timers are shared between the steps that leave them alone. */
const timerLists = new WeakMap<readonly ObservedTimer[], ArmedTimer[]>();

function timersOf(timers: readonly ObservedTimer[]): readonly ArmedTimer[] {
  let list = timerLists.get(timers);
  if (list === undefined) {
    list = timers.map(({ delay, state, armedAtMs, dueAtMs }) =>
      ArmedTimer.create({ delay, state, armedAtMs: Math.round(armedAtMs), dueAtMs: Math.round(dueAtMs) }),
    );
    timerLists.set(timers, list);
  }
  return list;
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
    timers: timersOf(actor.timers),
    steps: actor.steps,
    event: actor.lastEvent,
  });
}

/** `skipped` steps of the actor were left out before it; `withContext`: those or this one changed the context. */
export function stepMessage(step: ObservedStep, withContext: boolean, skipped: number): ActorStep {
  const { events, context } = showsOf(step.machine);
  const [, traceId = "", spanId = ""] = step.traceparent === "" ? [] : step.traceparent.split("-");
  return ActorStep.create({
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
    timers: timersOf(step.timers),
    traceId,
    spanId,
    unexpected: step.unexpected,
    source: step.source,
    skipped,
  });
}
