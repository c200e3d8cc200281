/**
 * Ids of a chart's transitions: `state#event#index`, where `index` counts the state's transitions for that event from 0. Instead
 * of the event's type, `after DELAY` or `always`. The web page's charts and the feed of actors both have them.
 */
import type { AnyStateMachine, AnyTransitionDefinition, StateNode } from "xstate";

export type AnyNode = StateNode<never, never>;
type Named = string | { readonly type: string } | ((...args: never) => unknown);

export interface IdentifiedTransition {
  readonly id: string;
  /** The event's type; empty for a transition that waits for a delay or is taken at once. */
  readonly event: string;
  /** The delay's name, or its milliseconds; empty if it waits for an event. */
  readonly delay: string;
  readonly guard: string;
  /** Names of its actions and effects, in order. */
  readonly actions: readonly string[];
  readonly transition: AnyTransitionDefinition;
}

export const rootOf = (machine: AnyStateMachine): AnyNode => machine.root as unknown as AnyNode;

export const childrenOf = (node: AnyNode): readonly AnyNode[] => Object.values<AnyNode>(node.states);

/** Path of a state's keys joined by dots; empty for the root. */
export const pathOf = (node: AnyNode): string => node.path.join(".");

export const nameOf = (named: unknown): string => {
  const known = named as Named;
  return typeof known === "string" ? known : "type" in known ? known.type : known.name;
};

/** The transitions of one state. */
export function allTransitionsOf(node: AnyNode): readonly IdentifiedTransition[] {
  const path = pathOf(node);
  const delays = new Map(node.after.map(({ eventType, delay }) => [eventType as string, String(delay)]));
  const listed = [...node.transitions].flatMap(([event, list]) => list.map((each, index) => ({ event, each, index })));
  const always = (node.always ?? []).map((each, index) => ({ event: "", each, index }));
  return [...always, ...listed].map(({ event, each, index }) => {
    const delay = delays.get(event);
    return {
      id: `${path}#${delay !== undefined ? `after ${delay}` : event === "" ? "always" : event}#${index}`,
      event: delay === undefined ? event : "",
      delay: delay ?? "",
      guard: each.guard === undefined ? "" : nameOf(each.guard),
      actions: each.actions.map(nameOf),
      transition: each as unknown as AnyTransitionDefinition,
    };
  });
}

/** Without the root's handler of unexpected events. */
export const transitionsOf = (node: AnyNode): readonly IdentifiedTransition[] =>
  allTransitionsOf(node).filter(({ event }) => event !== "*");
