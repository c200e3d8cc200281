/**
 * Takes a step of a chart again, from states and the part of the context that are known, without an actor and without effects.
 *
 * Whatever a decision reads of the context or the event is known, or the outcome names the field that is not: an object whose
 * unknown fields note that they are read. Delays and the params of effects decide nothing, so they may read unknown fields.
 */
import { createActor, type AnyMachineSnapshot, type AnyStateMachine } from "xstate";
import { ChartNames, joined, nothingTaken, type Taken } from "./chart-names.ts";
import { childrenOf, nameOf, rootOf, type AnyNode } from "./transition-ids.ts";

/** Known fields by their first key; the rest of each, or everything below it. */
export type Known = ReadonlyMap<string, Known> | "whole";

export interface StepBefore {
  /** Paths of all active atomic states. */
  readonly states: readonly string[];
  readonly context: Readonly<Record<string, unknown>>;
  readonly event: Readonly<Record<string, unknown>> & { readonly type: string };
}

export type StepAfter =
  | { readonly kind: "taken"; readonly states: readonly string[]; readonly context: object; readonly taken: Taken }
  /** The decision reads a field that is not known. */
  | { readonly kind: "unknown"; readonly field: string }
  | { readonly kind: "failed"; readonly error: string };

interface Action {
  readonly type?: string;
  readonly params?: unknown;
}

type Resolve = (...args: unknown[]) => [AnyMachineSnapshot, unknown, unknown];

/**
 * A state value such as `{ link: "up" }` from paths such as `link.up`. Regions are in the order of the chart, in which they take
 * an event. Throws for a state that the chart does not have.
 */
function valueOf(root: AnyNode, states: readonly string[]): unknown {
  const active = new Set(
    states.flatMap((path) => path.split(".").map((_, at, keys) => keys.slice(0, at + 1).join("."))),
  );
  for (const path of states) if (!hasState(root, path)) throw new Error(`the chart has no state ${path}`);
  const value = (node: AnyNode): unknown => {
    const inside = childrenOf(node).filter((child) => active.has(child.path.join(".")));
    const [only] = inside;
    if (node.type !== "parallel" && only !== undefined && childrenOf(only).length === 0) return only.key;
    return Object.fromEntries(inside.map((child) => [child.key, value(child)]));
  };
  return value(root);
}

function hasState(root: AnyNode, path: string): boolean {
  let node: AnyNode | undefined = root;
  for (const key of path.split(".")) node = (node?.states as Readonly<Record<string, AnyNode>> | undefined)?.[key];
  return node !== undefined;
}

export class StepAgain {
  readonly #machine: AnyStateMachine;
  readonly #names: ChartNames;
  readonly #context: Known;
  readonly #event: Known;
  #unknown: string | null = null;
  /** Reads that decide nothing are under way. */
  #isAside = false;
  #taken: Taken = nothingTaken;
  #seen: (transitions: never, snapshot: AnyMachineSnapshot) => void = () => undefined;

  constructor(machine: AnyStateMachine, known: { readonly context: Known; readonly event: Known }) {
    this.#context = known.context;
    this.#event = known.event;
    this.#machine = machine.provide({
      actions: Object.fromEntries(
        Object.entries(machine.implementations.actions).flatMap(([name, action]) =>
          isAssign(action) ? [[name, this.#assigning(action)]] : [],
        ),
      ),
      delays: Object.fromEntries(Object.keys(machine.implementations.delays).map((name) => [name, 1])),
    } as never);
    this.#setAside(rootOf(this.#machine));
    this.#names = new ChartNames(this.#machine);
  }

  take({ states, context, event }: StepBefore): StepAfter {
    this.#seen = () => undefined;
    const scope = this.#scope();
    // Its own initial context may have read fields of an input that it lacks.
    this.#unknown = null;
    this.#taken = nothingTaken;
    try {
      const before = this.#machine.resolveState({
        value: valueOf(rootOf(this.#machine), states) as never,
        context: this.#watched(context, this.#context, "") as never,
      });
      let active = this.#names.active(before._nodes as unknown as readonly AnyNode[]);
      this.#seen = (transitions, { _nodes }) => {
        const next = this.#names.active(_nodes as unknown as readonly AnyNode[]);
        this.#taken = joined([this.#taken, this.#names.taken(transitions, active, next)]);
        active = next;
      };
      const watchedEvent = this.#watched(event, this.#event, "event.") as { readonly type: string };
      const after = this.#machine.transition(before, watchedEvent, scope) as AnyMachineSnapshot;
      if (this.#unknown !== null) return { kind: "unknown", field: this.#unknown };
      const paths = this.#names.active(after._nodes as unknown as readonly AnyNode[]).paths;
      return { kind: "taken", states: paths, context: after.context as object, taken: this.#taken };
    } catch (error) {
      if (this.#unknown !== null) return { kind: "unknown", field: this.#unknown };
      return { kind: "failed", error: error instanceof Error ? error.message : String(error) };
    }
  }

  /** The surroundings of an actor in which nothing happens. */
  #scope(): never {
    const self = createActor(this.#machine, {
      inspect: (inspected) => {
        if (inspected.type === "@xstate.microstep")
          this.#seen(inspected._transitions as never, inspected.snapshot as AnyMachineSnapshot);
      },
    });
    const nothing = (): void => undefined;
    return {
      self,
      logic: this.#machine,
      id: "",
      sessionId: "",
      system: self.system,
      defer: nothing,
      emit: nothing,
      stopChild: nothing,
      actionExecutor: nothing,
    } as never;
  }

  /** An assignment makes a new context, which has to be watched again. */
  #assigning(action: { readonly resolve: Resolve }): unknown {
    const resolve: Resolve = (scope, snapshot, args, params, _action, extra) => {
      const [next, ...rest] = action.resolve(scope, snapshot, args, params, action, extra);
      (next as { context: unknown }).context = this.#watched(next.context as object, this.#context, "");
      return [next, ...rest];
    };
    return Object.assign(() => undefined, action, { resolve });
  }

  #watched(from: unknown, known: Known, path: string): unknown {
    if (known === "whole" || typeof from !== "object" || from === null) return from;
    if (Array.isArray(from)) return from.map((item) => this.#watched(item, known, path));
    if (from instanceof Map)
      return new Map(Array.from(from, ([key, item]: [unknown, unknown]) => [key, this.#watched(item, known, path)]));
    const read = (target: object, key: string | symbol): void => {
      if (typeof key !== "string" || key in target || known.has(key) || this.#isAside) return;
      if (path === "event." && key === "type") return;
      this.#unknown ??= `${path}${key}`;
    };
    const inner = new Map<string, unknown>();
    return new Proxy(from, {
      get: (target, key) => {
        read(target, key);
        const value: unknown = Reflect.get(target, key);
        const below = typeof key === "string" ? known.get(key) : undefined;
        if (below === undefined || below === "whole") return value;
        const name = key as string;
        if (!inner.has(name)) inner.set(name, this.#watched(value, below, `${path}${name}.`));
        return inner.get(name);
      },
      has: (target, key) => {
        read(target, key);
        return Reflect.has(target, key);
      },
    });
  }

  /** Params of effects decide nothing. */
  #setAside(node: AnyNode): void {
    const { actions } = this.#machine.implementations;
    const aside = (list: readonly unknown[]): unknown[] =>
      list.map((action) => {
        const { params } = action as Action;
        if (typeof params !== "function" || isAssign(actions[nameOf(action)])) return action;
        return { ...(action as object), params: (args: unknown) => this.#aside(() => params(args) as unknown) };
      });
    const open = node as unknown as { entry: unknown[]; exit: unknown[] };
    open.entry = aside(open.entry);
    open.exit = aside(open.exit);
    const lists = [...node.transitions.values(), node.always ?? []] as unknown as { actions: unknown[] }[][];
    for (const transition of lists.flat()) transition.actions = aside(transition.actions);
    for (const child of childrenOf(node)) this.#setAside(child);
  }

  #aside(read: () => unknown): unknown {
    this.#isAside = true;
    try {
      return read();
    } catch {
      // It read a field that is not there.
      return undefined;
    } finally {
      this.#isAside = false;
    }
  }
}

function isAssign(action: unknown): action is { readonly type: string; readonly resolve: Resolve } {
  return typeof action === "function" && "resolve" in action && (action as Action).type === "xstate.assign";
}
