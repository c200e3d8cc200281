/**
 * `chart` is XState's `setup` for every statechart of this system: the same configuration, with the effects declared apart
 * from the chart's own actions, so that the machine's type says what its host must supply (`Host.start`).
 *
 * It adds to each machine what all of them need: the root handler that reports unexpected events, and a limit of microsteps.
 * `ignore` in a state or at the root lists the events that it drops on purpose; in XState's terms, `{ on: { event: {} } }`.
 * `shows` lists what a viewer of the live actor may see of its context and events; nothing else leaves the process.
 *
 * C1: every effect, action, guard and delay that a chart declares is used in it, and every name that it uses is declared, once.
 */
import {
  setup,
  type ActionFunction,
  type AnyActorRef,
  type DelayConfig,
  type EventDescriptor,
  type EventObject,
  type GuardPredicate,
  type MachineConfig,
  type MachineContext,
  type MetaObject,
  type NonReducibleUnknown,
  type ParameterizedObject,
  type SetupTypes,
  type StateMachine,
  type StateNodeConfig,
  type StateSchema,
  type ToStateValue,
} from "xstate";
import { assert } from "../lib/assert.ts";
import type { WaitMeta } from "./wait-meta.ts";

/** An `always` loop throws after this many steps; the longest chain of a chart has fewer than ten. */
const microstepsMax = 1_000;

/** The host's function; gets the action's params. */
type Effect<Params> = (params: Params) => void;

/** Declares an effect with its params. Its host supplies the function. */
export function effect(): Effect<undefined>;
export function effect<Params>(): Effect<Params>;
export function effect(): Effect<unknown> {
  return () => {};
}

type Params = ParameterizedObject["params"] | undefined;
type Map = Record<string, Params>;
type Named<Of extends Map> = { [Name in keyof Of & string]: { type: Name; params: Of[Name] } }[keyof Of & string];

/**
 * Paths of fields that may be published (`machines/shown.ts`): of the context, and of whichever events have them. A dotted path
 * leads into a field, and ends in `$same` if only the equality of a text may be shown. A field with secrets or user data has no place here, nor an error text that may quote either.
 */
export interface Shows {
  readonly context: readonly string[];
  readonly events: readonly string[];
}

type PathOf<Key extends PropertyKey> = Key extends string ? Key | `${Key}.${string}` : never;
type KeyOfAny<Union> = Union extends unknown ? keyof Union : never;

/** `Shows` with the names of the fields of this chart. */
interface ShowsOf<Context, Event> {
  readonly context?: readonly NoInfer<PathOf<KeyOfAny<Context>>>[];
  readonly events?: readonly NoInfer<PathOf<Exclude<KeyOfAny<Event>, "type">>>[];
}

/**
 * A machine's type tells its host the effects and drawn delays; at run time, `machine.schemas` has their names, and what the
 * chart shows.
 */
interface Declared<Effects extends Map, Drawn extends string> extends StateSchema {
  readonly effects: { readonly [Name in keyof Effects]: Effect<Effects[Name]> };
  readonly drawnDelays: Drawn;
  readonly shows: Shows | null;
}

interface Ignoring<Event extends EventObject> {
  /** Events that are expected here and have no effect. */
  readonly ignore?: readonly EventDescriptor<Event>[];
}

type StateConfig<
  Context extends MachineContext,
  Event extends EventObject,
  Action extends ParameterizedObject,
  Guard extends ParameterizedObject,
  Delay extends string,
  Tag extends string,
  Meta extends MetaObject,
> = Omit<
  StateNodeConfig<Context, Event, never, Action, Guard, Delay, Tag, NonReducibleUnknown, EventObject, Meta>,
  "states"
> &
  Ignoring<Event> & {
    readonly states?: { [Name in string]: StateConfig<Context, Event, Action, Guard, Delay, Tag, Meta> };
  };

type RootConfig<
  Context extends MachineContext,
  Event extends EventObject,
  Action extends ParameterizedObject,
  Guard extends ParameterizedObject,
  Delay extends string,
  Tag extends string,
  Input,
  Output,
  Meta extends MetaObject,
> = Omit<
  MachineConfig<Context, Event, never, Action, Guard, Delay, Tag, Input, Output, EventObject, Meta>,
  "states" | "options"
> &
  Ignoring<Event> & {
    readonly id: string;
    readonly states: { [Name in string]: StateConfig<Context, Event, Action, Guard, Delay, Tag, Meta> };
  };

/** Names of a chart with what they stand for. */
interface Parts<
  Context extends MachineContext,
  Event extends EventObject,
  Effects extends Map,
  Actions extends Map,
  Guards extends Map,
  Delay extends string,
  Drawn extends string,
> {
  /** Supplied by the host; their outcome comes back as an event. */
  effects?: { [Name in keyof Effects]: Effect<Effects[Name]> };
  /** The chart's own: they change the context. */
  actions?: {
    [Name in keyof Actions]: ActionFunction<
      Context,
      Event,
      Event,
      Actions[Name],
      never,
      Named<Actions>,
      Named<Guards>,
      Delay,
      EventObject
    >;
  };
  guards?: { [Name in keyof Guards]: GuardPredicate<Context, Event, Guards[Name], Named<Guards>> };
  delays?: { [Name in Delay]: DelayConfig<Context, Event, undefined, Event> };
  /** Bounds: the host draws the delay at random below them (`Owner.draw`). */
  drawnDelays?: { [Name in Drawn]: DelayConfig<Context, Event, undefined, Event> };
  /** Nothing by default. */
  shows?: ShowsOf<Context, Event>;
}

interface Chart<
  Context extends MachineContext,
  Event extends EventObject,
  Effects extends Map,
  Actions extends Map,
  Guards extends Map,
  Delay extends string,
  Drawn extends string,
  Tag extends string,
  Input,
  Output extends NonReducibleUnknown,
  Meta extends MetaObject,
> {
  createMachine<
    const Config extends RootConfig<
      Context,
      Event,
      ActionOf<Effects, Actions>,
      Named<Guards>,
      Delay | Drawn,
      Tag,
      Input,
      Output,
      Meta
    >,
  >(
    config: Config,
  ): StateMachine<
    Context,
    Event,
    Record<string, AnyActorRef | undefined>,
    never,
    ActionOf<Effects, Actions>,
    Named<Guards>,
    Delay | Drawn,
    ToStateValue<Extract<Config, StateSchema>>,
    Tag,
    Input,
    Output,
    EventObject,
    Meta,
    Declared<Effects, Drawn>
  >;
  /** A state that a chart uses several times. */
  createStateConfig<
    const Config extends StateConfig<
      Context,
      Event,
      ActionOf<Effects, Actions>,
      Named<Guards>,
      Delay | Drawn,
      Tag,
      Meta
    >,
  >(
    config: Config,
  ): Config;
  /** A chart with further names. It need not use those of this one. */
  extend<
    MoreEffects extends Map = {},
    MoreActions extends Map = {},
    MoreGuards extends Map = {},
    MoreDelay extends string = never,
    MoreDrawn extends string = never,
  >(
    more: Parts<Context, Event, MoreEffects, MoreActions, MoreGuards, MoreDelay, MoreDrawn>,
  ): Chart<
    Context,
    Event,
    Effects & MoreEffects,
    Actions & MoreActions,
    Guards & MoreGuards,
    Delay | MoreDelay,
    Drawn | MoreDrawn,
    Tag,
    Input,
    Output,
    Meta
  >;
}

type ActionOf<Effects extends Map, Actions extends Map> =
  | Named<Actions>
  | Named<Effects>
  | { type: "reportUnexpected"; params: undefined };

export function chart<
  Context extends MachineContext,
  Event extends EventObject,
  Effects extends Map = {},
  Actions extends Map = {},
  Guards extends Map = {},
  Delay extends string = never,
  Drawn extends string = never,
  Tag extends string = string,
  Input = NonReducibleUnknown,
  Output extends NonReducibleUnknown = NonReducibleUnknown,
  Meta extends MetaObject = WaitMeta,
>(
  declared: Parts<Context, Event, Effects, Actions, Guards, Delay, Drawn> & {
    types?: SetupTypes<Context, Event, {}, Tag, Input, Output, EventObject, Meta>;
  },
): Chart<Context, Event, Effects, Actions, Guards, Delay, Drawn, Tag, Input, Output, Meta> {
  return chartOf(declared as AnyParts) as never;
}

type AnyParts = Readonly<Partial<Record<"effects" | "actions" | "guards" | "delays" | "drawnDelays", object>>> & {
  readonly shows?: Partial<Shows> | null;
};

/** Null if neither decides it: nothing is shown, and a test asks every chart of the system for a decision. */
function shownBy(base: Partial<Shows> | null = null, own: Partial<Shows> | null = null): Shows | null {
  if (base === null && own === null) return null;
  return {
    context: [...(base?.context ?? []), ...(own?.context ?? [])],
    events: [...(base?.events ?? []), ...(own?.events ?? [])],
  };
}

function chartOf(own: AnyParts, base: AnyParts = {}): object {
  const effects = { ...base.effects, ...own.effects };
  const actions = { ...base.actions, ...own.actions };
  const guards = { ...base.guards, ...own.guards };
  const delays = { ...base.delays, ...own.delays };
  const drawnDelays = { ...base.drawnDelays, ...own.drawnDelays };
  const shows = shownBy(base.shows, own.shows);
  const bodies = [...Object.keys(effects), "reportUnexpected"].map((name) => [name, missing(name)] as const);
  const machines = setup({
    schemas: { effects: Object.keys(effects), drawnDelays: Object.keys(drawnDelays), shows },
    actions: { ...actions, ...Object.fromEntries(bodies) },
    guards,
    delays: { ...delays, ...drawnDelays },
  } as never);
  return {
    createMachine(config: Config) {
      const { id = "" } = config;
      const used = namesIn(config);
      // `raise` with a delay.
      for (const { delay } of Object.values<{ readonly delay?: unknown }>(actions))
        if (typeof delay === "string") used.delays.add(delay);
      check(id, used.actions, [effects, actions], [own.effects, own.actions]);
      check(id, used.guards, [guards], [own.guards]);
      check(id, used.delays, [delays, drawnDelays], [own.delays, own.drawnDelays]);
      const { on, ...rest } = withoutIgnore(config);
      return machines.createMachine({
        ...rest,
        options: { maxIterations: microstepsMax },
        on: { ...on, "*": { actions: "reportUnexpected" } },
      } as never);
    },
    createStateConfig: (config: Config) => config,
    extend: (more: AnyParts) => chartOf(more, { effects, actions, guards, delays, drawnDelays, shows }),
  };
}

/** C1 */
function check(
  id: string,
  used: ReadonlySet<string>,
  declared: readonly object[],
  mustUse: readonly (object | undefined)[],
): void {
  const names = declared.flatMap((part) => Object.keys(part));
  assert(new Set(names).size === names.length, `C1: ${id} declares each name once: ${names.join(", ")}`);
  for (const name of used) assert(names.includes(name), `C1: ${id} declares ${name}`);
  for (const name of mustUse.flatMap((part = {}) => Object.keys(part)))
    assert(used.has(name), `C1: ${id} uses ${name}`);
}

/** The body of an effect that a host did not supply; `transition()` still shows the effect with its params as data. */
function missing(name: string): () => void {
  return () => {
    throw new Error(`effect ${name} is not provided`);
  };
}

type Some<Item> = Item | readonly Item[] | undefined;
type Name = string | { readonly type: string };
interface Transition {
  readonly guard?: Name;
  readonly actions?: Some<Name>;
}
type Transitions = Readonly<Record<string, Some<string | Transition>>>;
/** A state, as far as it names things. */
interface Config {
  readonly id?: string;
  readonly ignore?: readonly string[];
  readonly on?: Transitions;
  readonly after?: Transitions;
  readonly always?: Some<string | Transition>;
  readonly entry?: Some<Name>;
  readonly exit?: Some<Name>;
  readonly states?: Readonly<Record<string, Config>>;
}

const listOf = <Item>(some: Some<Item>): readonly Item[] =>
  some === undefined ? [] : Array.isArray(some) ? (some as readonly Item[]) : [some as Item];
const nameOf = (name: Name): string => (typeof name === "string" ? name : name.type);

interface Names {
  readonly actions: Set<string>;
  readonly guards: Set<string>;
  readonly delays: Set<string>;
}

function namesIn(config: Config, names: Names = { actions: new Set(), guards: new Set(), delays: new Set() }): Names {
  const { on = {}, after = {}, always, entry, exit, states = {} } = config;
  for (const action of [...listOf(entry), ...listOf(exit)]) names.actions.add(nameOf(action));
  for (const delay of Object.keys(after)) names.delays.add(delay);
  for (const transition of [...Object.values(on), ...Object.values(after), always].flatMap(listOf)) {
    if (typeof transition === "string") continue;
    for (const action of listOf(transition.actions)) names.actions.add(nameOf(action));
    if (transition.guard !== undefined) names.guards.add(nameOf(transition.guard));
  }
  for (const state of Object.values(states)) namesIn(state, names);
  return names;
}

/** The configuration as XState knows it. */
function withoutIgnore({ ignore = [], ...config }: Config): Config {
  const { on = {}, states = {} } = config;
  for (const event of ignore) assert(!(event in on), `C1: ${event} is either handled or ignored`);
  return {
    ...config,
    ...(ignore.length > 0 ? { on: { ...on, ...Object.fromEntries(ignore.map((event) => [event, {}])) } } : {}),
    ...("states" in config
      ? { states: Object.fromEntries(Object.entries(states).map(([name, state]) => [name, withoutIgnore(state)])) }
      : {}),
  };
}
