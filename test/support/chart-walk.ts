/** Walks two implementations of one chart in step: each event in each state that is found, with many answers of the guards. */
import type { ExecutionContext } from "ava";
import { initialTransition, transition, type AnyMachineSnapshot, type AnyStateMachine } from "xstate";
import {
  initialTransition as initialTransition6,
  transition as transition6,
  type AnyMachineSnapshot as AnySnapshot6,
} from "xstate-6";
import { createMachineFromSCXML } from "xstate-6/scxml";
import { allStates, chartData, type NamedData } from "../../cli/charts/chart-data.ts";

/** Answers guards by their name and static params. */
type Oracle = (guard: string) => boolean;

interface Step<State> {
  readonly state: State;
  /** Active atomic states, sorted. */
  readonly states: string;
  readonly isDone: boolean;
  /** Names of the actions that were performed, in order. */
  readonly actions: readonly string[];
}

interface Walker<State> {
  /** Whether `actions` are in order, and each as often as it was performed. */
  readonly isOrdered: boolean;
  /** Types of events that the chart handles, without patterns. */
  readonly events: readonly string[];
  start(oracle: Oracle): Step<State>;
  step(state: State, event: string, oracle: Oracle): Step<State>;
}

/** Answers every property and call with itself, so that params can be computed without a real event. */
const anything: unknown = new Proxy(() => anything, {
  get: (_, key) => (key === Symbol.toPrimitive ? () => 0 : key === Symbol.iterator ? [][Symbol.iterator] : anything),
  apply: () => anything,
});

const eventOf = (type: string): { readonly type: string } =>
  new Proxy({ type }, { get: (target, key) => (key in target ? Reflect.get(target, key) : anything) });

/** Paths of the active atomic and final states. */
function leavesOf(value: unknown, above = ""): readonly string[] {
  if (typeof value === "string") return [above + value];
  return Object.entries(value as Readonly<Record<string, unknown>>).flatMap(([key, inner]) =>
    Object.keys(inner as object).length === 0 ? [above + key] : leavesOf(inner, `${above}${key}.`),
  );
}

const plainEvents = (machine: AnyStateMachine): readonly string[] =>
  (machine.events as readonly string[]).filter((event) => !event.includes("*") && !/^xstate\.(?!after)/.test(event));

/** The machine with guards that ask the oracle, and without actions. */
export function xstateWalker(machine: AnyStateMachine): Walker<AnyMachineSnapshot> {
  let oracle: Oracle = () => false;
  const states = allStates(chartData(machine));
  const transitions = states.flatMap((state) => state.transitions);
  const all = <Body>(names: readonly string[], body: (name: string) => Body): Record<string, Body> =>
    Object.fromEntries(names.map((name) => [name, body(name)]));
  const typesOf = (named: readonly (NamedData | null)[]): readonly string[] =>
    named.flatMap((each) => (each === null ? [] : [each.type]));
  const delays = transitions.flatMap(({ cause }) => (cause.kind === "delay" ? [String(cause.delay)] : []));
  const stubbed = machine.provide({
    actions: all(
      typesOf([...states, ...transitions].flatMap((of) => ("actions" in of ? of.actions : [...of.entry, ...of.exit]))),
      () => () => {},
    ),
    guards: all(typesOf(transitions.map(({ guard }) => guard)), (name) => () => oracle(name)),
    delays: all(delays, () => 1_000),
  } as never);
  const stepOf = ([snapshot, actions]: readonly unknown[]): Step<AnyMachineSnapshot> => {
    const state = snapshot as AnyMachineSnapshot;
    return {
      state,
      states: leavesOf(state.value).toSorted().join(" "),
      isDone: state.status === "done",
      actions: (actions as readonly { readonly type: string }[])
        .map(({ type }) => type)
        .filter((type) => !type.startsWith("xstate.")),
    };
  };
  return {
    isOrdered: true,
    events: plainEvents(machine),
    start(answers) {
      oracle = answers;
      return stepOf(initialTransition(stubbed, anything as never));
    },
    step(state, event, answers) {
      oracle = answers;
      return stepOf(transition(stubbed, state as never, eventOf(event) as never));
    },
  };
}

/** `xstate.after.patience.lease.leading` is `after.patience.lease_leading`. */
const documentEvent = (event: string): string =>
  event.replace(/^xstate\.(after\.\w+\.)(.*)$/, (_, after: string, id: string) => after + id.replaceAll(".", "_"));

/** The document in XState 6's own SCXML interpreter, which calls the functions that it finds in the global scope. */
export function scxmlWalker(xml: string, id: string): Walker<AnySnapshot6> {
  const machine = createMachineFromSCXML(xml);
  let oracle: Oracle = () => false;
  let actions: string[] = [];
  const scope = globalThis as Record<string, unknown>;
  const functions: Record<string, unknown> = { _event: {} };
  for (const [, name = ""] of xml.matchAll(/<script>(\w+)\(/g)) functions[name] = () => actions.push(name);
  for (const [, name = ""] of xml.matchAll(/delayexpr="(\w+)\(/g)) functions[name] = () => "1000ms";
  for (const [, cond = ""] of xml.matchAll(/cond="([^"]*)"/g))
    for (const [, name = ""] of cond.matchAll(/(?:^|&amp;&amp; )(\w+)\(/g)) functions[name] = () => oracle(name);

  const within = (answers: Oracle, run: () => readonly unknown[]): Step<AnySnapshot6> => {
    const before = Object.fromEntries(Object.keys(functions).map((name) => [name, scope[name]]));
    Object.assign(scope, functions);
    oracle = answers;
    actions = [];
    try {
      const state = run()[0] as AnySnapshot6;
      // The states that only the document has are left out.
      const leaves = leavesOf(state.value).map((path) => path.split(".").at(-1) ?? "");
      const isDone = state.status === "done";
      return {
        state,
        states: leaves
          .filter((leaf) => leaf !== `${id}-done`)
          .map((leaf) => leaf.slice(id.length + 1).replaceAll("_", "."))
          .toSorted()
          .join(" "),
        isDone,
        actions,
      };
    } finally {
      for (const [name, value] of Object.entries(before)) {
        if (value === undefined) delete scope[name];
        else scope[name] = value;
      }
    }
  };
  return {
    // XState 6.0.0-alpha.52 enters outer states before it performs the actions of a transition to an inner one, and performs those of
    // `*` again before an eventless transition. Both are against SCXML's algorithm.
    isOrdered: false,
    events: [],
    start: (answers) => within(answers, () => initialTransition6(machine)),
    step: (state, event, answers) =>
      within(answers, () => transition6(machine, state as never, { type: documentEvent(event) } as never)),
  };
}

/** Guards that answer yes in none, all, and pseudo-random halves of the cases. */
const oracles: readonly Oracle[] = Array.from({ length: 4 }, (_, seed) => (guard: string) => {
  if (seed < 2) return seed === 1;
  let hash = seed * 7_919;
  for (const char of guard) hash = (hash * 31 + char.charCodeAt(0)) % 1_000_003;
  return hash % 2 === 1;
});

/** An oracle under which `always` leads in a circle; both must say so. */
const endless = "endless";

/** Fails the test at the first state, end or action in which the two differ. */
export function compareWalks<A, B>(t: ExecutionContext, name: string, expected: Walker<A>, actual: Walker<B>): void {
  const attempt = <State>(run: () => Step<State>): Step<State> | typeof endless => {
    try {
      return run();
    } catch (error) {
      if (/infinite|iterations|microstep/i.test((error as Error).message)) return endless;
      throw error;
    }
  };
  const isOrdered = expected.isOrdered && actual.isOrdered;
  const found = new Map<string, readonly [string, A, B]>();
  const queue: (readonly [string, A, B])[] = [];
  let steps = 0;
  const compare = (a: Step<A> | typeof endless, b: Step<B> | typeof endless, where: string): void => {
    if (a === endless || b === endless) {
      if (a !== b) t.fail(`${name}: only one is endless: ${where}`);
      return;
    }
    steps += 1;
    const said = ({ isDone, states, actions }: Step<unknown>): string =>
      `${isDone ? "done" : states} / ${(isOrdered ? actions : [...new Set(actions)].toSorted()).join(", ")}`;
    if (said(a) !== said(b)) t.is(said(b), said(a), `${name}: ${where}`);
    if (a.isDone || found.has(a.states)) return;
    found.set(a.states, [a.states, a.state, b.state]);
    queue.push([a.states, a.state, b.state]);
  };
  /** With each oracle, but only once when no guard was asked. */
  const tryAll = (where: string, ofA: (oracle: Oracle) => Step<A>, ofB: (oracle: Oracle) => Step<B>): void => {
    for (const oracle of oracles) {
      let isAsked = false;
      const asked: Oracle = (guard) => {
        isAsked = true;
        return oracle(guard);
      };
      compare(
        attempt(() => ofA(asked)),
        attempt(() => ofB(asked)),
        where,
      );
      if (!isAsked) return;
    }
  };
  tryAll(
    "start",
    (oracle) => expected.start(oracle),
    (oracle) => actual.start(oracle),
  );
  for (let pair = queue.shift(); pair !== undefined; pair = queue.shift()) {
    const [states, a, b] = pair;
    for (const event of [...expected.events, "an.unknown.event"])
      tryAll(
        `${event} in ${states}`,
        (oracle) => expected.step(a, event, oracle),
        (oracle) => actual.step(b, event, oracle),
      );
  }
  t.true(steps > 0, name);
}
