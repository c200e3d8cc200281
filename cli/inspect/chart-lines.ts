/**
 * A statechart as an indented tree: each state, its transitions below it, and the states inside it. The first column has the
 * marks: `●` an active state, `▶` a transition taken last.
 */
import type { ChartDefinition, StateDefinition, TransitionDefinition } from "../../proto/feed/chart-definition.ts";
import type { Actor } from "../../proto/feed/actors.ts";
import { delayText, eventText, line, span, wrapped, type Line } from "./texts.ts";

/**
 * How much of the chart is shown: with the transitions of all states; with those of active states and those taken last; or
 * states alone.
 */
export type Detail = "whole" | "active" | "states";

/** Columns for a description beside a state's name; with fewer, it has its own lines. */
const descriptionWidthMin = 24;
const step = "  ";

/** Such as `after grace [isLate]`. */
function causeOf({ event, delay, guard }: TransitionDefinition): string {
  const cause = delay !== "" ? `after ${delayText(delay)}` : event === "" ? "always" : eventText(event);
  return guard === "" ? cause : `${cause} [${guard}]`;
}

interface ChartPicture {
  readonly chart: ChartDefinition;
  readonly actor: Pick<Actor, "states" | "transitions" | "timers">;
  readonly width: number;
  readonly detail: Detail;
}

/** Whether the state, or one inside it, is active. */
export function isActive({ states }: Pick<Actor, "states">, path: string): boolean {
  return path === "" || states.some((active) => active === path || active.startsWith(`${path}.`));
}

export function chartLines({ chart, actor, width, detail }: ChartPicture): readonly Line[] {
  const taken = new Set(actor.transitions);

  function transitionLines(state: StateDefinition, indent: string): readonly Line[] {
    const isShown = (transition: TransitionDefinition): boolean => {
      if (taken.has(transition.id)) return true;
      // An event that the state expects and drops.
      if (transition.targets.length === 0 && transition.actions.length === 0) return false;
      return detail === "whole" || (detail === "active" && isActive(actor, state.path));
    };
    return state.transitions.filter(isShown).map((transition) => {
      const isTaken = taken.has(transition.id);
      const { targets, actions } = transition;
      const target = targets.length === 0 ? "" : ` → ${targets.map((path) => path || chart.id).join(", ")}`;
      return [
        span(isTaken ? "▶ " : "  ", "taken"),
        span(`${indent}${causeOf(transition)}${target}`, isTaken ? "taken" : null),
        span(actions.length === 0 ? "" : `  / ${actions.join(", ")}`, "dim"),
      ];
    });
  }

  function stateLines(state: StateDefinition, indent: string, initial: string): readonly Line[] {
    const active = isActive(actor, state.path);
    const notes = [
      ...(state.path === initial ? ["initial"] : []),
      ...(state.type === "parallel" || state.type === "final" || state.type === "history" ? [state.type] : []),
    ];
    const note = notes.length === 0 ? "" : ` (${notes.join(", ")})`;
    const head = [
      span(active ? "● " : "○ ", active ? "active" : "dim"),
      span(`${indent}${state.key}`, active ? "active" : null),
      span(note, "dim"),
    ];
    const used = 2 + indent.length + state.key.length + note.length + 2;
    const { description } = state;
    const below = "  " + indent + step;
    const lines: Line[] = [];
    // The whole description of where the actor is; elsewhere one line is enough to find the way.
    if (description === "" || (!active && width - used < descriptionWidthMin)) lines.push(head);
    else if (!active || used + description.length <= width) lines.push([...head, span(`  ${description}`, "dim")]);
    else lines.push(head, ...wrapped(description, width - below.length).map((text) => line(`${below}${text}`, "dim")));
    lines.push(...transitionLines(state, indent + step));
    for (const child of state.states) lines.push(...stateLines(child, indent + step, state.initial));
    return lines;
  }

  const always = transitionLines(chart.root, step);
  return [
    ...(always.length === 0 ? [] : [line("  in any state", "dim"), ...always]),
    ...chart.root.states.flatMap((state) => stateLines(state, "", chart.root.initial)),
  ];
}

/** The states that wait for something, among the active ones and those around them, outermost first. */
export function waitingStates(chart: ChartDefinition, actor: Pick<Actor, "states">): readonly StateDefinition[] {
  const found: StateDefinition[] = [];
  const visit = (state: StateDefinition): void => {
    if (!isActive(actor, state.path)) return;
    if (state.waitingFor !== "") found.push(state);
    for (const child of state.states) visit(child);
  };
  visit(chart.root);
  return found;
}
