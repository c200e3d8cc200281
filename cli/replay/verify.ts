/**
 * `muster replay --verify`: takes every recorded step again, with the charts of this Muster, and compares.
 *
 * A step whose decision reads a field that recordings leave out is counted, with the field, and never taken for a difference.
 */
import { shown, restored } from "../../machines/shown.ts";
import { ActorState, ActorStatus, type ActorStep } from "../../proto/gen/messages.ts";
import { StepAgain, type Known, type StepAfter } from "../../runtime/observation/step-again.ts";
import type { Life, Segment } from "../../runtime/recording/segment.ts";
import type { TimelineIndex } from "../../runtime/recording/timeline-index.ts";

type Machine = ConstructorParameters<typeof StepAgain>[0];

interface Shows {
  readonly context: readonly string[];
  readonly events: readonly string[];
}

export interface ChartCount {
  readonly chart: string;
  steps: number;
  verified: number;
  /** Steps that cannot be verified, by the reason. */
  readonly unknown: Map<string, number>;
}

export interface Difference {
  readonly process: string;
  readonly step: ActorStep;
  /** The part that differs: `states`, `transitions`, `guards`, `effects`, `context`, or `chart`. */
  readonly part: string;
  readonly recorded: string;
  readonly now: string;
}

export interface Verification {
  readonly charts: readonly ChartCount[];
  /** Number of steps that differ. */
  readonly differences: number;
  readonly first: Difference | null;
}

/** Before a step. */
interface Before {
  readonly number: number;
  readonly states: readonly string[];
  /** JSON. */
  readonly context: string;
}

function knownOf(paths: readonly string[]): Known {
  const tree = new Map<string, Known>();
  for (const path of paths) {
    let at = tree;
    const keys = path.split(".");
    for (const [depth, key] of keys.entries()) {
      const below = at.get(key);
      if (below === "whole") break;
      if (depth === keys.length - 1) at.set(key, "whole");
      else {
        const next = (below as Map<string, Known> | undefined) ?? new Map<string, Known>();
        at.set(key, next);
        at = next;
      }
    }
  }
  return tree;
}

class Chart {
  readonly count: ChartCount;
  readonly #machine: Machine | null;
  readonly #shows: Shows;
  readonly #again: StepAgain | null;

  constructor(name: string, machine: Machine | null) {
    this.count = { chart: name, steps: 0, verified: 0, unknown: new Map() };
    this.#machine = machine;
    const { shows } = (machine?.schemas ?? {}) as { readonly shows?: Shows | null };
    this.#shows = shows ?? { context: [], events: [] };
    const known = { context: knownOf(this.#shows.context), event: knownOf(this.#shows.events) };
    this.#again = machine === null ? null : new StepAgain(machine, known);
  }

  /** The first part that differs; null if none does, or none can be compared. */
  verify(before: Before | undefined, step: ActorStep): Omit<Difference, "process" | "step"> | null {
    this.count.steps += 1;
    if (this.#again === null || this.#machine === null)
      return { part: "chart", recorded: this.count.chart, now: "this Muster does not have the chart" };
    const reason = unverifiable(before, step);
    if (reason !== null || before === undefined) return this.#unknown(reason ?? "the steps before it");
    const recorded = step.context === "" ? before.context : step.context;
    let context, fields, reached, sorted;
    try {
      context = restored(before.context === "" ? "{}" : before.context);
      fields = restored(step.fields === "" ? "{}" : step.fields);
      reached = restored(recorded === "" ? "{}" : recorded);
      sorted = canonical(recorded === "" ? "{}" : recorded);
    } catch {
      return this.#unknown("fields that cannot be read");
    }
    if (!context.isWhole || !fields.isWhole || !reached.isWhole) return this.#unknown("a field that was cut");
    const event = { ...fields.fields, type: step.event };
    const after = this.#again.take({ states: before.states, context: context.fields, event });
    if (after.kind === "unknown") return this.#unknown(after.field);
    const found = this.#compared(step, after, { recorded, sorted });
    if (found === null) this.count.verified += 1;
    return found;
  }

  #unknown(reason: string): null {
    const { unknown } = this.count;
    unknown.set(reason, (unknown.get(reason) ?? 0) + 1);
    return null;
  }

  #compared(
    step: ActorStep,
    after: Exclude<StepAfter, { readonly kind: "unknown" }>,
    context: { readonly recorded: string; readonly sorted: string },
  ): Omit<Difference, "process" | "step"> | null {
    if (after.kind === "failed")
      return { part: "outcome", recorded: step.states.join(" "), now: `error: ${after.error}` };
    const { taken, states } = after;
    const parts: readonly (readonly [string, readonly string[], readonly string[]])[] = [
      ["transitions", step.transitions, taken.transitions],
      ["states", step.states, states],
      ["guards", step.guards, taken.guards],
      ["effects", step.effects, taken.effects],
      ["expected", [String(!step.unexpected)], [String(!taken.unexpected)]],
    ];
    for (const [part, recorded, now] of parts)
      if (recorded.join(" ") !== now.join(" ")) return { part, recorded: recorded.join(" "), now: now.join(" ") };
    const now = shown(after.context, this.#shows.context);
    return context.sorted === canonical(now) ? null : { part: "context", recorded: context.recorded, now };
  }
}

/** JSON with sorted keys. */
function canonical(json: string): string {
  return JSON.stringify(JSON.parse(json), (_, value: unknown) =>
    typeof value === "object" && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : value,
  );
}

/** Why a step is not a decision of the chart that could be repeated; null: it is. */
function unverifiable(before: Before | undefined, step: ActorStep): string | null {
  if (step.event === "xstate.init") return "the input of its start";
  if (step.event === "xstate.stop" || step.status === ActorStatus.ACTOR_STOPPED) return "stopped from outside";
  if (before === undefined || step.skipped > 0 || before.number + 1 !== step.number) return "the steps before it";
  return null;
}

/** Runs through all steps in order. `machines`: the charts of this Muster by id. */
export function verify(index: TimelineIndex, machines: ReadonlyMap<string, Machine>): Verification {
  const charts = new Map<string, Chart>();
  const states = new Map<Life, Before>();
  let differences = 0;
  let first: Difference | null = null;
  for (const segment of index.segments) {
    let mark = 0;
    for (let at = 0; at <= segment.length; at += 1) {
      mark = takeMarks(segment, mark, at, states);
      if (at === segment.length) break;
      const life = segment.lives[at] as Life;
      const step = index.stepAt(segment, at);
      let chart = charts.get(life.machine);
      if (chart === undefined)
        charts.set(life.machine, (chart = new Chart(life.machine, machines.get(life.machine) ?? null)));
      const before = states.get(life);
      const found = chart.verify(before, step);
      if (found !== null) {
        differences += 1;
        first ??= { process: life.process, step, ...found };
      }
      states.set(life, {
        number: step.number,
        states: step.states,
        context: step.context === "" ? (before?.context ?? "") : step.context,
      });
    }
  }
  const counts = [...charts.values()].map(({ count }) => count).toSorted((a, b) => b.steps - a.steps);
  return { charts: counts, differences, first };
}

function takeMarks(segment: Segment, from: number, at: number, states: Map<Life, Before>): number {
  let mark = from;
  for (; mark < segment.marks.length; mark += 1) {
    const each = segment.marks[mark];
    if (each === undefined || each.after > at) break;
    if (each.kind === "gone") states.delete(each.life);
    if (each.kind !== "state") continue;
    const { context, states: paths, steps } = ActorState.decode(each.state);
    states.set(each.life, { number: steps, states: paths, context });
  }
  return mark;
}
