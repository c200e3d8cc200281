/** The table of actors: those that are stuck on top, then by process and id. */
import { statesText, type Actor, type Actors, type Process } from "../../proto/feed/actors.ts";
import { overdueGraceMs, overdueMs } from "../../proto/feed/stuck.ts";
import type { ArmedTimer } from "../../proto/gen/messages.ts";
import type { Listing } from "../table.ts";
import { actorObject } from "./objects.ts";
import type { Matches } from "./operand.ts";
import { delayText, shortDuration } from "./texts.ts";

/** Characters of an object's id in a table, as in Docker's. */
const shortIdLength = 12;

export interface Filter {
  readonly matches: Matches;
  /** Values of `--process`; null: every process. */
  readonly processes: ReadonlySet<string> | null;
  /** Values of `--state`; none: every state. */
  readonly states: readonly string[];
  readonly stuck: boolean;
}

export interface Listed {
  readonly actor: Actor;
  readonly process: Process;
  /** The clock of the process, in milliseconds since the epoch. */
  readonly nowMs: number;
  /** Milliseconds; 0: it is not stuck. */
  readonly overdueMs: number;
}

/** A path, or consecutive keys of one: `serving.connected`, `serving` and `connected`. */
export function isInState(states: readonly string[], wanted: string): boolean {
  return states.some((path) => `.${path}.`.includes(`.${wanted}.`));
}

/** Only the past of a process that is lost, or whose messages were, is known: nothing of it counts as stuck. */
export function stuckFor(actor: Actor, process: Process, nowMs: number): number {
  return process.stale ? 0 : overdueMs(actor, nowMs);
}

/** `nowMs`: the clock of this command. */
export function listed(actors: Actors, filter: Filter, nowMs: number): readonly Listed[] {
  const found: Listed[] = [];
  for (const process of actors.processes.values()) {
    if (filter.processes !== null && !filter.processes.has(process.id)) continue;
    const now = nowMs + process.skewMs;
    for (const actor of process.actors.values()) {
      if (!filter.matches(process.id, actor.id)) continue;
      if (filter.states.length > 0 && !filter.states.some((state) => isInState(actor.states, state))) continue;
      const overdue = stuckFor(actor, process, now);
      if (!filter.stuck || overdue > 0) found.push({ actor, process, nowMs: now, overdueMs: overdue });
    }
  }
  const order = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
  return found.toSorted(
    (a, b) => b.overdueMs - a.overdueMs || order(a.process.id, b.process.id) || order(a.actor.id, b.actor.id),
  );
}

function nextTimer(timers: readonly ArmedTimer[]): ArmedTimer | null {
  return timers.reduce<ArmedTimer | null>(
    (next, each) => (next === null || each.dueAtMs < next.dueAtMs ? each : next),
    null,
  );
}

/** Such as `renewal in 3m05s`, or `STUCK: renewal overdue 12s`. */
function deadlineText({ actor, process, nowMs }: Listed): string {
  const timer = nextTimer(actor.timers);
  if (timer === null) return "";
  const name = delayText(timer.delay);
  const left = timer.dueAtMs - nowMs;
  if (left >= 0) return `${name} in ${shortDuration(left)}`;
  if (process.stale) return `${name} was due ${shortDuration(-left)} ago`;
  return -left > overdueGraceMs ? `STUCK: ${name} overdue ${shortDuration(-left)}` : `${name} due now`;
}

/** The id with its objects' ids cut to Docker's length: `muster inspect` accepts unique prefixes. */
function shortId(id: string): string {
  return id.replaceAll(/(?<=[/-])[0-9a-z]{25}(?=\/|$)/g, (each) => each.slice(0, shortIdLength));
}

/** `isShort`: for a terminal: ids are cut, and processes have the names of their hosts. */
export function listingOf(rows: readonly Listed[], nameOf: (actor: string) => string, isShort: boolean): Listing {
  const idOf = (id: string): string => (isShort ? shortId(id) : id);
  const showsProcess = !isShort || rows.some(({ process }) => process.hostname === "");
  const listed = ["ACTOR", "NAME", "STATE", "AGE", "IN STATE", "NEXT DEADLINE", "HOST"];
  return {
    headings: showsProcess ? [...listed, "PROCESS"] : listed,
    rows: rows.map((row) => {
      const { actor, process, nowMs } = row;
      const cells = [
        idOf(actor.id),
        nameOf(actor.id),
        statesText(actor.states),
        actor.startedAtMs === 0 ? "" : shortDuration(nowMs - actor.startedAtMs),
        actor.sinceMs === 0 ? "" : shortDuration(nowMs - actor.sinceMs),
        deadlineText(row),
        process.hostname,
      ];
      return {
        id: actor.id,
        cells: showsProcess ? [...cells, idOf(process.id)] : cells,
        object: () => ({}),
        fields: () => actorObject(actor, process, row.overdueMs),
      };
    }),
  };
}
