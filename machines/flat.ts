/**
 * Compiles a chart without nested states into a table, for machines of which a process runs thousands and that get an event
 * with every message: a step of XState leaves about 5 KiB of garbage, a table's almost none. The chart remains what is read,
 * drawn and tested; the table is derived from it.
 *
 * FM1: after any events, state, context and effects (in order) equal XState's.
 * FM2: charts that use what the table does not support (nested states, timers, actors, eventless transitions, states that
 *      re-enter themselves) are rejected at compile time.
 */
import type { AnyStateMachine, ContextFrom, EventFromLogic } from "xstate";
import { assert } from "../lib/assert.ts";

export interface FlatEffect {
  readonly type: string;
  readonly params: unknown;
}

interface FlatState<Context> {
  readonly value: string;
  readonly context: Context;
  /** A final state: further events have no effect. */
  readonly isDone: boolean;
}

/** Names of what a step did, as viewers of live actors see them (`runtime/observation/step.ts`). */
interface FlatTaken {
  readonly transitions: readonly string[];
  readonly guards: readonly string[];
  readonly effects: readonly string[];
  readonly unexpected: boolean;
}

interface FlatMachine<Context, Event> {
  readonly initial: FlatState<Context>;
  /** The state after an event, the effects to perform, in order, and the names of both. */
  step(state: FlatState<Context>, event: Event): readonly [FlatState<Context>, readonly FlatEffect[], FlatTaken];
}

interface Scope {
  readonly context: unknown;
  readonly event: unknown;
}
type Named = string | { readonly type: string; readonly params?: unknown };
type Some<Item> = Item | readonly Item[] | undefined;
interface TransitionConfig {
  readonly target?: string;
  readonly guard?: Named;
  readonly actions?: Some<Named>;
}
type TransitionsConfig = Readonly<Record<string, Some<string | TransitionConfig>>>;
interface StateConfig {
  readonly on?: TransitionsConfig;
  readonly entry?: Some<Named>;
  readonly exit?: Some<Named>;
  readonly type?: string;
}
interface Assign {
  readonly type: "xstate.assign";
  readonly assignment: object | ((scope: Scope, params: unknown) => object);
}

type Action =
  | { readonly kind: "assign"; assigned(scope: Scope): object }
  | { readonly kind: "effect"; readonly type: string; params(scope: Scope): unknown };
interface Candidate {
  holds(scope: Scope): boolean;
  /** Null: stays in the current state. */
  readonly target: string | null;
  readonly actions: readonly Action[];
  readonly taken: FlatTaken;
}
type Table = ReadonlyMap<string, readonly Candidate[]>;

const known = {
  root: ["id", "schemas", "context", "initial", "options", "on", "states"],
  state: ["description", "meta", "on", "entry", "exit", "type"],
  transition: ["target", "guard", "actions", "description"],
};

const nothingTaken: FlatTaken = { transitions: [], guards: [], effects: [], unexpected: false };

const listOf = <Item>(some: Some<Item>): readonly Item[] =>
  some === undefined ? [] : Array.isArray(some) ? (some as readonly Item[]) : [some as Item];

function check(what: string, config: object, keys: readonly string[]): void {
  for (const key of Object.keys(config)) assert(keys.includes(key), `FM2: a flat chart has no "${key}" in ${what}`);
}

function paramsOf(named: Named): (scope: Scope) => unknown {
  const params = typeof named === "string" ? undefined : named.params;
  return typeof params === "function" ? (params as (scope: Scope) => unknown) : () => params;
}

const nameOf = (named: Named): string => (typeof named === "string" ? named : named.type);

function actionOf(machine: AnyStateMachine, named: Named): Action {
  const type = nameOf(named);
  const params = paramsOf(named);
  const implementation = machine.implementations.actions[type] as unknown as Assign | (() => void) | undefined;
  assert(implementation !== undefined, `FM2: action "${type}" is declared`);
  if (!("assignment" in implementation)) return { kind: "effect", type, params };
  const { assignment } = implementation;
  if (typeof assignment !== "function") {
    for (const value of Object.values(assignment))
      assert(typeof value !== "function", `FM2: "${type}" assigns all at once`);
    return { kind: "assign", assigned: () => assignment };
  }
  const assigning = assignment as (scope: Scope, params: unknown) => object;
  return { kind: "assign", assigned: (scope) => assigning(scope, params(scope)) };
}

function guardOf(machine: AnyStateMachine, named: Named | undefined): (scope: Scope) => boolean {
  if (named === undefined) return () => true;
  const guard = machine.implementations.guards[nameOf(named)] as unknown as
    | ((scope: Scope, params: unknown) => boolean)
    | undefined;
  assert(typeof guard === "function", `FM2: guard "${nameOf(named)}" is declared`);
  const params = paramsOf(named);
  return (scope) => guard(scope, params(scope));
}

/** Throws InvariantError for a chart that is not flat (FM2). */
export function flattened<Machine extends AnyStateMachine>(
  machine: Machine,
): FlatMachine<ContextFrom<Machine>, EventFromLogic<Machine>> {
  type Context = ContextFrom<Machine>;
  const config = machine.config as unknown as {
    readonly on?: TransitionsConfig;
    readonly initial: string;
    readonly context: Context;
    readonly states: Readonly<Record<string, StateConfig>>;
  };
  check("its root", config, known.root);
  assert(typeof config.context !== "function", "FM2: a flat chart begins with the same context each time");

  const actionsOf = (list: readonly Named[]): readonly Action[] => list.map((named) => actionOf(machine, named));
  /** `owner`: path of the state that has the transitions; empty for the root. */
  function candidates(from: string, owner: string, event: string, some: Some<string | TransitionConfig>) {
    return listOf(some).map((each, index): Candidate => {
      const transition: TransitionConfig = typeof each === "string" ? { target: each } : each;
      check(`a transition of ${from}`, transition, known.transition);
      const target = transition.target?.replace(/^\./, "") ?? null;
      let named = listOf(transition.actions);
      if (target !== null) {
        const [left, entered] = [config.states[from], config.states[target]];
        assert(left !== undefined && entered !== undefined && left !== entered, `FM2: from ${from} to another state`);
        named = [...listOf(left.exit), ...named, ...listOf(entered.entry)];
      }
      const unexpected = event === "*";
      const taken: FlatTaken = {
        transitions: unexpected ? [] : [`${owner}#${event}#${index}`],
        guards: transition.guard === undefined ? [] : [nameOf(transition.guard)],
        effects: unexpected ? [] : named.map(nameOf),
        unexpected,
      };
      return { holds: guardOf(machine, transition.guard), target, actions: actionsOf(named), taken };
    });
  }

  const tables = new Map<string, Table>();
  const done = new Set<string>();
  for (const [value, state] of Object.entries(config.states)) {
    check(value, state, known.state);
    if (state.type !== undefined) {
      assert(state.type === "final" && state.exit === undefined, `FM2: ${value} is a plain or a final state`);
      done.add(value);
    }
    const table = new Map<string, readonly Candidate[]>();
    if (!done.has(value)) {
      // The state's own transitions for the event come first, then the root's.
      for (const [owner, on] of [[value, state.on ?? {}] as const, ["", config.on ?? {}] as const])
        for (const [type, transitions] of Object.entries(on)) {
          table.set(type, [...(table.get(type) ?? []), ...candidates(value, owner, type, transitions)]);
        }
      assert(state.on?.["*"] === undefined, `FM2: ${value} names each event`);
    }
    tables.set(value, table);
  }
  const entry = config.states[config.initial]?.entry;
  assert(entry === undefined && !done.has(config.initial), "FM2: a flat chart begins without doing anything");

  return {
    initial: { value: config.initial, context: config.context, isDone: false },
    step(state, event) {
      const table = tables.get(state.value);
      assert(table !== undefined, `${state.value} is a state`);
      let scope: Scope = { context: state.context, event };
      const chosen =
        table.get((event as { readonly type: string }).type)?.find((each) => each.holds(scope)) ??
        table.get("*")?.find((each) => each.holds(scope));
      if (chosen === undefined) return [state, [], nothingTaken];
      const effects: FlatEffect[] = [];
      for (const action of chosen.actions) {
        if (action.kind === "effect") effects.push({ type: action.type, params: action.params(scope) });
        else scope = { context: { ...(scope.context as object), ...action.assigned(scope) }, event };
      }
      const value = chosen.target ?? state.value;
      return [{ value, context: scope.context as Context, isDone: done.has(value) }, effects, chosen.taken];
    },
  };
}
