import { deepStrictEqual } from "node:assert";
import test from "ava";
import fc from "fast-check";
import { assign, cancel, createActor, raise, setup, type AnyMachineSnapshot, type AnyStateMachine } from "xstate";
import { allCharts } from "../../cli/charts.ts";
import { plannedSteps } from "../../runtime/steps/planned.ts";
import { PlannedTwin } from "../support/planned-twin.ts";

test("PS2: plans support every chart of the system", async (t) => {
  const charts = await allCharts();
  const unsupported = charts.filter(({ machine }) => plannedSteps(machine) === null);
  t.true(charts.length > 40);
  t.deepEqual(
    unsupported.map(({ name }) => name),
    [],
  );
});

/** Params of each execution of the action `note`. */
const noted: unknown[] = [];

const tools = setup({
  types: { context: {} as { readonly count: number }, events: {} as { readonly type: string } },
  actions: {
    count: assign(({ context }) => ({ count: context.count + 1 })),
    reset: assign({ count: 0 }),
    note: (_args, params: { readonly of: string; readonly count: number }) => void noted.push(params),
    raiseInner: raise({ type: "inner.raised" }),
    raiseLater: raise({ type: "later" }, { id: "later", delay: "wait" }),
    cancelLater: cancel("later"),
  },
  guards: {
    even: ({ context }) => context.count % 2 === 0,
    third: ({ context }, { rest }: { readonly rest: number }) => context.count % 3 === rest,
    throws: () => {
      throw new Error("cannot tell");
    },
  },
  delays: { wait: ({ context }) => 10 + context.count },
});

/** A state of a drawn chart. */
interface Drawn {
  readonly kind: "atomic" | "compound" | "parallel" | "final";
  readonly children: readonly Drawn[];
  readonly transitions: readonly {
    readonly on: string;
    /** Index among all states of the chart; null: none. */
    readonly target: number | null;
    readonly reenter: boolean;
    readonly guard: number;
    readonly actions: readonly number[];
  }[];
  readonly entry: readonly number[];
  readonly exit: readonly number[];
  readonly hasDelay: boolean;
}

const types = ["one", "two", "two.more", "two.*", "*", "inner.raised", "later", "xstate.done.state.c-s0"] as const;
const guards = [undefined, undefined, "even", { type: "third", params: { rest: 1 } }] as const;
const actions = [
  "count",
  "reset",
  "raiseInner",
  "raiseLater",
  "cancelLater",
  { type: "note", params: ({ context }: { context: { count: number } }) => ({ of: "params", count: context.count }) },
] as const;

const actionList = fc.array(fc.nat(actions.length - 1), { maxLength: 3 });
const transition = fc.record({
  on: fc.constantFrom(...types, ...types, ""),
  target: fc.option(fc.nat(30), { freq: 4 }),
  reenter: fc.boolean(),
  guard: fc.nat(guards.length - 1),
  actions: actionList,
});
const { state } = fc.letrec<{ state: Drawn }>((tie) => ({
  state: fc.record({
    kind: fc.constantFrom("atomic", "atomic", "compound", "parallel", "parallel", "final"),
    children: fc.oneof(
      { depthSize: "small", withCrossShrink: true },
      fc.constant([]),
      fc.array(tie("state"), { minLength: 2, maxLength: 3 }),
    ),
    transitions: fc.array(transition, { maxLength: 5, size: "max" }),
    entry: actionList,
    exit: actionList,
    hasDelay: fc.boolean(),
  }),
}));

/** Ids of a state and those in it. */
function idsOf(drawn: Drawn, id: string): readonly string[] {
  return [id, ...drawn.children.flatMap((child, at) => idsOf(child, `${id}-s${at}`))];
}

function configOf(drawn: Drawn, id: string, all: readonly string[]): object {
  const isLeaf = drawn.children.length === 0;
  const isFinal = isLeaf && drawn.kind === "final" && id !== "c";
  const on: Record<string, object[]> = {};
  const always: object[] = [];
  for (const { actions: done, guard, on: type, reenter, target } of drawn.transitions) {
    const each = {
      ...(target === null ? {} : { target: `#${all[target % all.length]}` }),
      // Unguarded ones never end.
      ...(type === "" ? { guard: "even", actions: ["count"] } : { guard: guards[guard], actions: named(done) }),
      reenter,
    };
    (type === "" ? always : (on[type] ??= [])).push(each);
  }
  if (isFinal) return { id, type: "final", entry: named(drawn.entry), output: { ended: id } };
  return {
    id,
    on,
    always,
    entry: named(drawn.entry),
    exit: named(drawn.exit),
    tags: [id.slice(-2)],
    ...(drawn.hasDelay ? { after: { wait: { actions: "count" } } } : {}),
    ...(isLeaf
      ? {}
      : {
          states: Object.fromEntries(
            drawn.children.map((child, at) => [`s${at}`, configOf(child, `${id}-s${at}`, all)]),
          ),
        }),
    ...(isLeaf ? {} : drawn.kind === "parallel" ? { type: "parallel" } : { initial: "s0" }),
  };
}

const named = (numbers: readonly number[]): readonly unknown[] => numbers.map((number) => actions[number]);

function chartOf(drawn: Drawn): AnyStateMachine {
  const config = configOf(drawn, "c", idsOf(drawn, "c"));
  return tools.createMachine({
    ...config,
    context: { count: 0 },
    output: ({ context, event }: { context: { count: number }; event: unknown }) => [context.count, event],
    options: { maxIterations: 50 },
  } as never) as unknown as AnyStateMachine;
}

/** Actions, timers and end of a planned step, in a system that is inspected or not. */
function taken(
  planned: AnyStateMachine["transition"],
  from: AnyMachineSnapshot,
  event: object,
  isInspected: boolean,
): unknown {
  noted.length = 0;
  const timers: unknown[] = [];
  const scope = {
    self: from.machine,
    system: {
      isInspected,
      _sendInspectionEvent: () => {
        if (!isInspected) throw new Error("nobody sees an inspection event");
      },
      scheduler: {
        schedule: (_source: unknown, _target: unknown, ...timer: readonly unknown[]) => void timers.push(timer),
        cancel: (_source: unknown, id: string) => void timers.push(id),
      },
    },
    defer: (act: () => void) => act(),
    actionExecutor: ({ exec, info, params }: { info: unknown; params: unknown; exec?: (...args: unknown[]) => void }) =>
      exec?.(info, params),
  };
  try {
    const { context, output, status, value } = planned(
      from as never,
      event as never,
      scope as never,
    ) as AnyMachineSnapshot;
    return { noted: [...noted], timers, context, output: output as unknown, status, value };
  } catch (error) {
    return { noted: [...noted], timers, error: (error as Error).message };
  }
}

/** Walks through the chart, and compares each step; the number of steps that changed the active states. */
function walk(machine: AnyStateMachine, events: readonly { readonly type: string }[]): number {
  const scope = {
    self: createActor(machine),
    system: { _sendInspectionEvent: () => undefined },
    defer: () => undefined,
    actionExecutor: () => undefined,
  };
  const twin = new PlannedTwin(machine, scope.self);
  const planned = plannedSteps(machine) as AnyStateMachine["transition"];
  let snapshot = machine.getInitialSnapshot(scope as never, undefined as never) as AnyMachineSnapshot;
  let moves = 0;
  for (const event of events) {
    if (snapshot.status !== "active") break;
    twin.compare(snapshot, event);
    deepStrictEqual(taken(planned, snapshot, event, false), taken(planned, snapshot, event, true));
    try {
      const next = machine.transition(snapshot, event as never, scope as never) as AnyMachineSnapshot;
      if (next._nodes !== snapshot._nodes) moves += 1;
      snapshot = next;
    } catch {
      break;
    }
  }
  return moves;
}

test("PS1: in drawn charts, a planned step has the same outcome as XState's", (t) => {
  let moves = 0;
  const root = state.filter(({ children }) => children.length > 0);
  const event = fc.constantFrom(
    ...types.filter((type) => !type.includes("*")),
    "two.more.still",
    "xstate.after.wait.c-s0",
  );
  fc.assert(
    fc.property(
      root,
      fc.array(
        event.map((type) => ({ type })),
        { minLength: 6, maxLength: 16, size: "max" },
      ),
      (drawn, events) => {
        moves += walk(chartOf(drawn), events);
      },
    ),
    { numRuns: 1_000 },
  );
  t.true(moves > 500, String(moves));
});

test("PS1: a guard that throws ends a step with XState's error", (t) => {
  const machine = tools.createMachine({
    id: "throwing",
    context: { count: 0 },
    on: { one: { guard: "throws" } },
    initial: "only",
    states: { only: {} },
  });
  t.notThrows(() => walk(machine, [{ type: "one" }]));
});

test("PS2: a chart with a history state is left to XState", (t) => {
  const machine = tools.createMachine({
    id: "history",
    context: { count: 0 },
    initial: "on",
    states: { on: { initial: "low", states: { low: {}, before: { type: "history" } } } },
  });
  t.is(plannedSteps(machine), null);
});
