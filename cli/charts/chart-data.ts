/** A statechart as plain data, whole: what the export formats are written from. Paths are keys joined by dots; the root's is empty. */
import type { AnyStateMachine } from "xstate";
import { assert } from "../../lib/assert.ts";
import {
  allTransitionsOf,
  childrenOf,
  pathOf,
  rootOf,
  type AnyNode,
  type IdentifiedTransition,
} from "../../runtime/observation/transition-ids.ts";

/** An action or a guard. */
export interface NamedData {
  readonly type: string;
  /** Absent: none, or computed. */
  readonly params?: unknown;
  /** The params are computed from the context and the event when it runs. */
  readonly isComputed: boolean;
}

export interface TransitionData {
  readonly cause:
    | { readonly kind: "event"; readonly event: string }
    /** A delay's name, or milliseconds. */
    | { readonly kind: "delay"; readonly delay: string | number }
    | { readonly kind: "always" }
    /** The state has reached its final states. */
    | { readonly kind: "done" };
  readonly guard: NamedData | null;
  /** Paths. None: nothing is left or entered. */
  readonly targets: readonly string[];
  readonly actions: readonly NamedData[];
  /** Leaves and enters its own state though the targets are that state or inside it. */
  readonly isReentering: boolean;
  readonly description: string;
}

export interface StateData {
  readonly path: string;
  readonly key: string;
  /** XState's: the machine's id, then the path. */
  readonly id: string;
  readonly type: "atomic" | "compound" | "parallel" | "final" | "history";
  readonly history: "shallow" | "deep" | null;
  readonly description: string;
  readonly meta: Readonly<Record<string, unknown>> | null;
  readonly tags: readonly string[];
  readonly entry: readonly NamedData[];
  readonly exit: readonly NamedData[];
  /** Path of the initial state, or of a history's default; null: none. */
  readonly initial: string | null;
  /** In the order in which they are tried for an event: exact events before patterns. */
  readonly transitions: readonly TransitionData[];
  readonly states: readonly StateData[];
}

function namedOf(named: unknown, where: string): NamedData {
  if (typeof named === "string") return { type: named, isComputed: false };
  assert(typeof named === "object" && named !== null && "type" in named, `${where} names its actions and guards`);
  const { type, params } = named as { readonly type: string; readonly params?: unknown };
  if (typeof params === "function") return { type, isComputed: true };
  return params === undefined ? { type, isComputed: false } : { type, params, isComputed: false };
}

/** Patterns such as `run.*` are tried after exact events, longer ones first. */
function rankOf({ cause }: TransitionData): number {
  return cause.kind === "event" && cause.event.endsWith("*") ? 1_000 - cause.event.length : 0;
}

function causeOf(node: AnyNode, { event, delay }: IdentifiedTransition): TransitionData["cause"] {
  if (delay !== "") return { kind: "delay", delay: /^\d+$/.test(delay) ? Number(delay) : delay };
  if (event === "") return { kind: "always" };
  return event === `xstate.done.state.${node.id}` ? { kind: "done" } : { kind: "event", event };
}

function transitionOf(node: AnyNode, identified: IdentifiedTransition): TransitionData {
  const { guard, target, actions, reenter, description } = identified.transition;
  const targets = (target ?? []).map((each) => pathOf(each as unknown as AnyNode));
  return {
    cause: causeOf(node, identified),
    guard: guard === undefined ? null : namedOf(guard, node.id),
    targets,
    actions: actions.map((action) => namedOf(action, node.id)),
    // A transition to other states leaves its own in any case.
    isReentering: reenter && targets.length > 0 && targets.every((each) => isWithin(each, pathOf(node))),
    description: description ?? "",
  };
}

/** The state that a history enters when there is none to remember. */
function defaultOf({ parent, config, machine }: AnyNode): AnyNode | undefined {
  const { target } = config as { readonly target?: string };
  if (target === undefined || parent === undefined) return parent?.initial.target?.[0] as AnyNode | undefined;
  return (target.startsWith("#") ? machine.getStateNodeById(target) : parent.states[target]) as AnyNode | undefined;
}

function stateOf(node: AnyNode): StateData {
  assert(node.invoke.length === 0, `${node.id} invokes no actors`);
  const own = (actions: readonly unknown[]): readonly NamedData[] =>
    // XState arms and cancels timers with functions of its own.
    actions.filter((action) => typeof action !== "function").map((action) => namedOf(action, node.id));
  const [initial] =
    node.type === "compound" ? (node.initial.target ?? []) : node.type === "history" ? [defaultOf(node)] : [];
  return {
    path: pathOf(node),
    key: node.key,
    id: node.id,
    type: node.type,
    history: node.type === "history" ? (node.history === "deep" ? "deep" : "shallow") : null,
    description: node.description ?? "",
    meta: (node.meta as Readonly<Record<string, unknown>> | undefined) ?? null,
    tags: [...node.tags],
    entry: own(node.entry),
    exit: own(node.exit),
    initial: initial === undefined ? null : pathOf(initial as AnyNode),
    transitions: allTransitionsOf(node)
      .map((each) => transitionOf(node, each))
      .sort((a, b) => rankOf(a) - rankOf(b)),
    states: childrenOf(node).map(stateOf),
  };
}

/** Throws InvariantError for a machine with inline actions or guards, or with invoked actors. */
export function chartData(machine: AnyStateMachine): StateData {
  return stateOf(rootOf(machine));
}

/** Whether `path` is `outer` or inside it. */
export function isWithin(path: string, outer: string): boolean {
  return outer === "" || path === outer || path.startsWith(`${outer}.`);
}

/** A transition that leaves only what is inside its own state. */
export function isInner({ path }: StateData, { targets, isReentering }: TransitionData): boolean {
  return targets.length > 0 && !isReentering && targets.every((target) => isWithin(target, path));
}

/** With `state` itself, outer ones first. */
export const allStates = (state: StateData): readonly StateData[] => [state, ...state.states.flatMap(allStates)];
