/**
 * Takes the steps of a chart's actors by plans: what XState finds anew in each step (candidates, states to leave and enter, the
 * order of actions) is found once for each combination of active states and transitions. The rest is XState's as before: actors,
 * mailboxes, snapshots, inspection events ([ADR 56](../../docs/adr/0056-planned-steps.md)).
 *
 * PS1: a planned step gives the same snapshot, actions (in order, with their params) and inspection events as XState's, the events only
 *      in a system that somebody inspects.
 * PS2: a chart with a feature that plans do not have (history states, invoked actors, several targets, other built-in actions) is
 *      left to XState as a whole.
 */
import type { AnyStateMachine, AnyTransitionDefinition } from "xstate";
import { childrenOf, nameOf, rootOf, type AnyNode } from "../observation/transition-ids.ts";
import { moveOf, parentOf, type Transition } from "./move.ts";

interface Event {
  readonly type: string;
}

/** Arguments that XState passes to the functions of a chart. */
interface Args {
  readonly context: object;
  readonly event: Event;
}
interface ActionArgs extends Args {
  readonly self: unknown;
  readonly system: unknown;
}

/** The part of XState's actor scope that a step needs. */
interface Scope {
  readonly self: object;
  readonly system: {
    readonly scheduler: {
      schedule(source: unknown, target: unknown, event: Event, delay: number, id: string | undefined): void;
      cancel(source: unknown, id: string): void;
    };
    _sendInspectionEvent(event: object): void;
    /** False: nobody sees inspection events, so none is made. Absent in systems that are not a host's. */
    isInspected?: boolean;
  };
  readonly defer: (act: () => void) => void;
  readonly actionExecutor: (action: {
    readonly type: string;
    readonly info: ActionArgs;
    readonly params: unknown;
    readonly exec: ((info: ActionArgs, params: never) => void) | undefined;
  }) => void;
}

/** A step under way. */
interface Run {
  readonly scope: Scope;
  event: Event;
  context: object;
  hasAssigned: boolean;
  isDone: boolean;
  output: unknown;
  /** Events that the chart has raised. */
  readonly raised: Event[];
}

type Act = (run: Run) => void;
type Params = (args: Args) => unknown;

interface Candidate {
  readonly transition: Transition;
  /** Its number in the chart. */
  readonly number: number;
  readonly guard: ((args: Args) => boolean) | null;
}

/** The candidates of one state, which count if no state inside has taken the event. */
interface Choice {
  readonly node: AnyNode;
  readonly inside: readonly Choice[];
  readonly own: readonly Candidate[];
}

/** A combination of active states. */
interface Active {
  readonly nodes: readonly AnyNode[];
  readonly value: unknown;
  readonly tags: ReadonlySet<string>;
  /** By event type. */
  readonly choices: Map<string, Choice>;
  /** Transitions without an event: for each atomic state its own and its ancestors', the first that holds is taken. */
  readonly always: readonly (readonly Candidate[])[];
  /** By the numbers of the transitions. */
  readonly plans: Map<number | string, Plan>;
}

interface Plan {
  readonly acts: readonly Act[];
  readonly after: Active;
  /** The states before and after are the same, although some may have been left and entered again. */
  readonly isSame: boolean;
  /** For inspection. */
  readonly definitions: readonly AnyTransitionDefinition[];
}

interface Snapshot {
  readonly status: string;
  readonly output: unknown;
  readonly error: unknown;
  readonly machine: AnyStateMachine;
  readonly context: object;
  readonly _nodes: readonly AnyNode[];
  readonly value: unknown;
  readonly tags: ReadonlySet<string>;
  readonly children: object;
  readonly historyValue: object;
  readonly matches: unknown;
  readonly hasTag: unknown;
  readonly can: unknown;
  readonly getMeta: unknown;
  readonly toJSON: unknown;
}

/** XState's built-in actions are functions with these fields. */
interface BuiltIn {
  readonly type: string;
  readonly resolve?: unknown;
  readonly assignment?: unknown;
  readonly event?: unknown;
  readonly delay?: unknown;
  readonly id?: unknown;
  readonly sendId?: unknown;
}

class Unsupported extends Error {}

const isAtomic = ({ type }: AnyNode): boolean => type === "atomic" || type === "final";

/** Events of XState itself, which it handles apart. */
const isOwn = (type: string): boolean =>
  type === "xstate.stop" || type === "xstate.init" || type.startsWith("xstate.error.actor");

function spawn(): never {
  throw new Error("PS2: a planned chart does not spawn actors");
}

/** Takes the steps of the machine in place of its `transition`; null for a chart that is left to XState (PS2). */
export function plannedSteps(machine: AnyStateMachine): AnyStateMachine["transition"] | null {
  const byXState = machine.transition as unknown as (snapshot: Snapshot, event: Event, scope: Scope) => unknown;
  try {
    const planned = new PlannedSteps(machine);
    const transition = (snapshot: Snapshot, event: Event, scope: Scope): unknown =>
      isOwn(event.type) ? byXState(snapshot, event, scope) : planned.step(snapshot, event, scope);
    return transition as unknown as AnyStateMachine["transition"];
  } catch (error) {
    if (error instanceof Unsupported) return null;
    throw error;
  }
}

class PlannedSteps {
  readonly #machine: AnyStateMachine;
  readonly #root: AnyNode;
  readonly #stepsMax: number;
  readonly #candidates = new Map<unknown, Candidate>();
  readonly #actives = new Map<string, Active>();
  /** By the array of a snapshot, which snapshots with the same states share. */
  readonly #known = new WeakMap<readonly AnyNode[], Active>();

  constructor(machine: AnyStateMachine) {
    this.#machine = machine;
    this.#root = rootOf(machine);
    this.#stepsMax =
      (machine as unknown as { options?: { maxIterations?: number } }).options?.maxIterations ?? Infinity;
    this.#prepare(this.#root);
  }

  step(before: Snapshot, event: Event, scope: Scope): Snapshot {
    const run: Run = {
      scope,
      event,
      context: before.context,
      hasAssigned: false,
      isDone: false,
      output: undefined,
      raised: [],
    };
    let active = this.#activeOf(before._nodes);
    let snapshot = before;
    let selected = this.#selected(active, event, run);
    // Transitions without an event follow, unless such a one has just changed nothing.
    let mayFollow = true;
    for (let steps = 0; ; steps += 1) {
      if (selected.length === 0) this.#show(run, snapshot, []);
      else {
        const plan = this.#planOf(active, selected);
        run.hasAssigned = false;
        for (const act of plan.acts) act(run);
        if (run.hasAssigned || run.isDone || !plan.isSame) {
          snapshot = this.#after(snapshot, plan.isSame ? active : plan.after, run);
          if (!plan.isSame) active = plan.after;
          mayFollow = true;
        }
        this.#show(run, snapshot, plan.definitions);
      }
      if (run.isDone) return snapshot;
      if (steps >= this.#stepsMax) throw new Error(endless(this.#stepsMax));
      selected = mayFollow ? this.#following(active, run) : [];
      mayFollow = selected.length === 0;
      if (!mayFollow) continue;
      const raised = run.raised.shift();
      if (raised === undefined) return snapshot;
      run.event = raised;
      selected = this.#selected(active, raised, run);
    }
  }

  #show(run: Run, snapshot: Snapshot, transitions: readonly AnyTransitionDefinition[]): void {
    const { system } = run.scope;
    if (system.isInspected === false) return;
    system._sendInspectionEvent({
      type: "@xstate.microstep",
      actorRef: run.scope.self,
      event: run.event,
      snapshot,
      _transitions: transitions,
    });
  }

  #after(before: Snapshot, active: Active, run: Run): Snapshot {
    return {
      status: run.isDone ? "done" : before.status,
      output: run.isDone ? run.output : before.output,
      error: before.error,
      machine: before.machine,
      context: run.context,
      _nodes: active.nodes,
      value: active.value,
      tags: active.tags,
      children: before.children,
      historyValue: before.historyValue,
      matches: before.matches,
      hasTag: before.hasTag,
      can: before.can,
      getMeta: before.getMeta,
      toJSON: before.toJSON,
    };
  }

  #selected(active: Active, event: Event, { context }: Run): readonly Candidate[] {
    let choice = active.choices.get(event.type);
    if (choice === undefined) {
      choice = this.#choice(this.#root, active.nodes, event.type);
      active.choices.set(event.type, choice);
    }
    return select(choice, { context, event });
  }

  #following({ always }: Active, { context, event }: Run): readonly Candidate[] {
    if (always.length === 0) return none;
    const args = { context, event };
    const selected = new Set<Candidate>();
    for (const candidates of always) {
      const first = candidates.find(({ guard }) => guard === null || guard(args));
      if (first !== undefined) selected.add(first);
    }
    return selected.size === 0 ? none : [...selected];
  }

  #activeOf(nodes: readonly AnyNode[]): Active {
    let active = this.#known.get(nodes);
    if (active !== undefined) return active;
    const key = nodes.map(({ order }) => order).join(" ");
    active = this.#actives.get(key);
    if (active === undefined) {
      active = {
        nodes,
        value: valueOf(this.#root, nodes),
        tags: new Set(nodes.flatMap(({ tags }) => tags as readonly string[])),
        choices: new Map(),
        always: nodes
          .filter(isAtomic)
          .map((node) => withAncestors(node).flatMap((each) => this.#candidatesOf(each.always ?? [])))
          .filter(({ length }) => length > 0),
        plans: new Map(),
      };
      this.#actives.set(key, active);
    }
    this.#known.set(nodes, active);
    return active;
  }

  /** The candidates for an event, in the order of XState: those of inner states first, an exact match before wildcards. */
  #choice(node: AnyNode, active: readonly AnyNode[], type: string): Choice {
    // XState visits regions in the order of the state's value.
    const inside = active
      .filter((each) => each.parent === (node as unknown))
      .map((each) => this.#choice(each, active, type))
      .filter((each) => each.own.length > 0 || each.inside.length > 0);
    const patterns = [...node.transitions.keys()]
      .filter((pattern) => pattern !== type && matchesPattern(type, pattern))
      .toSorted((a, b) => b.length - a.length);
    const own = [type, ...patterns].flatMap((pattern) => this.#candidatesOf(node.transitions.get(pattern) ?? []));
    const [only] = inside;
    return only !== undefined && inside.length === 1 && own.length === 0 ? only : { node, inside, own };
  }

  #candidatesOf(transitions: readonly unknown[]): readonly Candidate[] {
    return transitions.map((each) => this.#candidates.get(each) as Candidate);
  }

  #planOf(active: Active, selected: readonly Candidate[]): Plan {
    const [only] = selected;
    const key =
      selected.length === 1 && only !== undefined ? only.number : selected.map((each) => each.number).join(" ");
    let plan = active.plans.get(key);
    if (plan === undefined) active.plans.set(key, (plan = this.#plan(active, selected)));
    return plan;
  }

  #plan(active: Active, selected: readonly Candidate[]): Plan {
    const move = moveOf(
      selected.map(({ transition }) => transition),
      active.nodes,
    );
    const acts: Act[] = [];
    const nodes = new Set(active.nodes);
    for (const node of move.left) {
      acts.push(...this.#acts(node.exit));
      nodes.delete(node);
    }
    acts.push(...move.transitions.flatMap(({ actions }) => this.#acts(actions)));
    let isDone = false;
    const completed = new Set<AnyNode>();
    for (const node of move.entered) {
      nodes.add(node);
      acts.push(...this.#acts(node.entry));
      if (move.byDefault.has(node)) acts.push(...this.#acts(node.initial.actions));
      if (node.type !== "final") continue;
      const finished = this.#finish(node, nodes, completed);
      acts.push(...finished.acts);
      isDone ||= finished.isDone;
    }
    const after = [...nodes];
    if (isDone) {
      after.sort((a, b) => b.order - a.order);
      acts.push(...after.flatMap((node) => this.#acts(node.exit)));
    }
    const isSame = after.length === active.nodes.length && active.nodes.every((node) => nodes.has(node));
    // As XState shows them: of those without an event only the ones that are taken.
    const isAlways = selected.every(({ transition }) => transition.definition.eventType === "");
    const shown = isAlways ? move.transitions : selected.map(({ transition }) => transition);
    return {
      acts,
      after: isSame ? active : this.#activeOf(after),
      isSame,
      definitions: shown.map(({ definition }) => definition),
    };
  }

  /** A final state was entered: its parent is done, and perhaps the regions around it, and the chart. */
  #finish(
    node: AnyNode,
    active: ReadonlySet<AnyNode>,
    completed: Set<AnyNode>,
  ): { readonly acts: readonly Act[]; readonly isDone: boolean } {
    const acts: Act[] = [];
    const parent = parentOf(node);
    let around = parent?.type === "parallel" ? parent : parent && parentOf(parent);
    let last = around ?? node;
    if (parent?.type === "compound") {
      const { id } = parent;
      acts.push((run) => void run.raised.push(doneEvent(id, outputOf(node, run))));
    }
    while (around?.type === "parallel" && !completed.has(around) && isFinished(around, active)) {
      const { id } = around;
      completed.add(around);
      acts.push((run) => void run.raised.push(doneEvent(id, undefined)));
      last = around;
      around = parentOf(around);
    }
    if (around !== undefined) return { acts, isDone: false };
    acts.push((run) => {
      run.isDone = true;
      run.output =
        this.#root.output === undefined
          ? undefined
          : outputOf(this.#root, {
              ...run,
              event: doneEvent(last.id, parentOf(last) === undefined ? undefined : outputOf(last, run)),
            });
    });
    return { acts, isDone: true };
  }

  /** Checks a state and those in it (PS2), and numbers their transitions. */
  #prepare(node: AnyNode): void {
    if (node.type === "history" || node.invoke.length > 0) throw new Unsupported();
    this.#acts([...node.entry, ...node.exit]);
    if (node.type === "compound") this.#acts(node.initial.actions);
    for (const definition of [...node.transitions.values(), node.always ?? []].flat()) {
      const transition = {
        ...(definition as unknown as Omit<Transition, "definition">),
        definition: definition as unknown as AnyTransitionDefinition,
      };
      if (transition.target !== undefined && transition.target.length !== 1) throw new Unsupported();
      this.#acts(transition.actions);
      const guard = this.#guard(transition.guard, (message) => {
        const named = nameOf(transition.guard);
        return `Unable to evaluate guard '${named}' in transition for event '${definition.eventType}' in state node '${node.id}':\n${message}`;
      });
      this.#candidates.set(definition, { transition, number: this.#candidates.size, guard });
    }
    for (const child of childrenOf(node)) this.#prepare(child);
  }

  #guard(guard: unknown, failed: (message: string) => string): Candidate["guard"] {
    if (guard === undefined) return null;
    const found =
      typeof guard === "function"
        ? (guard as object)
        : (this.#machine.implementations.guards[nameOf(guard)] as object | undefined);
    if (typeof found !== "function" || "check" in found) throw new Unsupported();
    const holds = found as (args: Args, params: unknown) => boolean;
    const params = paramsOf(guard);
    return (args) => {
      try {
        return holds(args, params(args));
      } catch (error) {
        throw new Error(failed((error as Error).message), { cause: error });
      }
    };
  }

  #acts(actions: readonly unknown[]): readonly Act[] {
    return actions.map((action) => this.#act(action));
  }

  #act(action: unknown): Act {
    const found =
      typeof action === "function"
        ? action
        : (this.#machine.implementations.actions[nameOf(action)] as unknown as object | undefined);
    const params = paramsOf(action);
    if (found === undefined || !("resolve" in found)) {
      const type = typeof action === "function" ? action.name || "(anonymous)" : nameOf(action);
      const exec = found as ((info: ActionArgs, params: unknown) => void) | undefined;
      return (run) => {
        const info = argsOf(run);
        const given = params(info);
        if (run.scope.system.isInspected === false) exec?.(info, given);
        else run.scope.actionExecutor({ type, info, params: given, exec });
      };
    }
    const builtIn = found as unknown as BuiltIn;
    switch (builtIn.type) {
      case "xstate.assign":
        return assigning(builtIn, params);
      case "xstate.raise":
        return this.#raising(builtIn, params);
      case "xstate.cancel":
        return cancelling(builtIn, params);
      default:
        throw new Unsupported();
    }
  }

  #raising(builtIn: BuiltIn, params: Params): Act {
    const event = valued<Event>(builtIn.event);
    const id = builtIn.id as string | undefined;
    const { delay } = builtIn;
    const delayOf = valued<number | undefined>(
      typeof delay === "string" ? this.#machine.implementations.delays[delay] : delay,
    );
    return (run) => {
      const info = argsOf(run);
      const given = params(info);
      const raised = event(info, given);
      const ms = delayOf(info, given);
      const { scope } = run;
      const { self, system } = scope;
      if (typeof ms !== "number") run.raised.push(raised);
      const schedule = (): void => {
        if (typeof ms === "number") scope.defer(() => system.scheduler.schedule(self, self, raised, ms, id));
      };
      if (system.isInspected === false) return schedule();
      scope.actionExecutor({
        type: "xstate.raise",
        info,
        params: { event: raised, id, delay: ms },
        exec: schedule,
      });
    };
  }
}

const none: readonly Candidate[] = [];

const endless = (max: number): string =>
  `Infinite loop detected: the machine has processed more than ${max} microsteps without reaching a stable state.`;

function argsOf({ context, event, scope }: Run): ActionArgs {
  return { context, event, self: scope.self, system: scope.system };
}

function paramsOf(named: unknown): Params {
  if (typeof named !== "object" || named === null || !("params" in named)) return () => undefined;
  const { params } = named;
  return typeof params === "function" ? ({ context, event }) => params({ context, event }) : () => params;
}

/** A value, or the function that gives it. */
function valued<Value>(value: unknown): (args: ActionArgs, params: unknown) => Value {
  return typeof value === "function" ? (args, params) => value(args, params) as Value : () => value as Value;
}

function assigning({ assignment }: BuiltIn, params: Params): Act {
  const entries = Object.entries(assignment as object).map(([key, value]) => [key, valued<unknown>(value)] as const);
  const assigned =
    typeof assignment === "function"
      ? (args: ActionArgs, given: unknown) => ({ ...args.context, ...valued<object>(assignment)(args, given) })
      : (args: ActionArgs, given: unknown) => {
          const context: Record<string, unknown> = { ...args.context };
          for (const [key, value] of entries) context[key] = value(args, given);
          return context;
        };
  return (run) => {
    const { context, event, scope } = run;
    const args = { context, event, spawn, self: scope.self, system: scope.system };
    run.context = assigned(args, params(args));
    run.hasAssigned = true;
  };
}

function cancelling({ sendId }: BuiltIn, params: Params): Act {
  const idOf = valued<string>(sendId);
  return (run) => {
    const info = argsOf(run);
    const id = idOf(info, params(info));
    const { scope } = run;
    const cancel = (): void => scope.defer(() => scope.system.scheduler.cancel(scope.self, id));
    if (scope.system.isInspected === false) return cancel();
    scope.actionExecutor({ type: "xstate.cancel", info, params: { sendId: id }, exec: cancel });
  };
}

function select(choice: Choice, args: Args): readonly Candidate[] {
  const { inside, own } = choice;
  let selected = none;
  for (const each of inside) {
    const found = select(each, args);
    if (found.length > 0) selected = selected.length === 0 ? found : [...selected, ...found];
  }
  if (selected.length > 0) return selected;
  for (const candidate of own) if (candidate.guard === null || candidate.guard(args)) return [candidate];
  return none;
}

const withAncestors = (node: AnyNode): readonly AnyNode[] => {
  const parent = parentOf(node);
  return parent === undefined ? [node] : [node, ...withAncestors(parent)];
};

/** XState's value of active states, such as `{ link: "up" }`. */
function valueOf(node: AnyNode, active: readonly AnyNode[]): unknown {
  const inside = active.filter((each) => each.parent === (node as unknown));
  const [first] = inside;
  if (node.type === "compound" && first !== undefined && isAtomic(first)) return first.key;
  return Object.fromEntries(inside.map((each) => [each.key, valueOf(each, active)]));
}

function isFinished(node: AnyNode, active: ReadonlySet<AnyNode>): boolean {
  if (node.type === "compound") return childrenOf(node).some((each) => each.type === "final" && active.has(each));
  if (node.type === "parallel") return childrenOf(node).every((each) => isFinished(each, active));
  return node.type === "final";
}

function matchesPattern(type: string, pattern: string): boolean {
  if (pattern === "*") return true;
  if (!pattern.endsWith(".*")) return false;
  const start = pattern.slice(0, -1);
  return type.startsWith(start) || type === start.slice(0, -1);
}

const doneEvent = (id: string, output: unknown): Event & { readonly output: unknown } => ({
  type: `xstate.done.state.${id}`,
  output,
});

function outputOf({ output }: AnyNode, { context, event, scope }: Run): unknown {
  if (typeof output !== "function") return output;
  return (output as (args: object) => unknown)({ context, event, self: scope.self });
}
