/** Actors and what happens to them as objects, for templates and JSON. Times are RFC 3339 strings; a time that is unknown is empty. */
import { kindOf, type Actor, type Process } from "../../proto/feed/actors.ts";
import { ActorStatus, type ActorStep, type ArmedTimer } from "../../proto/gen/messages.ts";

type Fields = Readonly<Record<string, unknown>>;

const statuses: Readonly<Record<number, string>> = {
  [ActorStatus.ACTOR_ACTIVE]: "active",
  [ActorStatus.ACTOR_DONE]: "done",
  [ActorStatus.ACTOR_STOPPED]: "stopped",
  [ActorStatus.ACTOR_FAILED]: "failed",
};

export const statusText = (status: number): string => statuses[status] ?? String(status);

const timeOf = (ms: number): string => (ms === 0 ? "" : new Date(ms).toISOString());

function parsed(json: string): unknown {
  try {
    return json === "" ? {} : JSON.parse(json);
  } catch {
    return json;
  }
}

const timerObject = ({ delay, state, armedAtMs, dueAtMs }: ArmedTimer): Fields => ({
  Delay: delay,
  State: state,
  ArmedAt: timeOf(armedAtMs),
  DueAt: timeOf(dueAtMs),
});

export function actorObject(actor: Actor, process: Process, overdueMs: number): Fields {
  return {
    Actor: actor.id,
    Chart: actor.machine,
    Context: parsed(actor.context),
    Event: actor.event,
    Host: process.hostname,
    Kind: kindOf(actor.id),
    OverdueMs: Math.round(overdueMs),
    Process: process.id,
    Since: timeOf(actor.sinceMs),
    StartedAt: timeOf(actor.startedAtMs),
    States: actor.states,
    Status: statusText(actor.status),
    Steps: actor.steps,
    Stuck: overdueMs > 0,
    Timers: actor.timers.map(timerObject),
    Transitions: actor.transitions,
  };
}

export function stepObject(step: ActorStep, process: string): Fields {
  return {
    Type: "step",
    Time: timeOf(step.atMs),
    Process: process,
    Actor: step.actor,
    Chart: step.machine,
    Number: step.number,
    Skipped: step.skipped,
    Event: step.event,
    Fields: parsed(step.fields),
    Unexpected: step.unexpected,
    States: step.states,
    Status: statusText(step.status),
    Transitions: step.transitions,
    Guards: step.guards,
    Effects: step.effects,
    // Null: unchanged.
    Context: step.context === "" ? null : parsed(step.context),
    Timers: step.timers.map(timerObject),
    Source: step.source,
    Call: step.call,
    TraceID: step.traceId,
    LinkedTraceIDs: step.linkedTraceIds,
    LinkedMore: step.linkedMore,
    SpanID: step.spanId,
  };
}
