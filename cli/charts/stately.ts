/**
 * A statechart as a document of the Stately Machine Specification (version 0.1.0), Stately's own JSON for machines, with its `xstate`
 * profile: `key`, closed objects, actions in lists, references by path. Delays keep their names as keys, which XState resolves;
 * the specification itself knows only milliseconds and ISO 8601 durations.
 */
import type { NamedData, StateData, TransitionData } from "./chart-data.ts";

type Json = Readonly<Record<string, unknown>>;

/** Without fields that say nothing. */
function filled(fields: Json): Json {
  return Object.fromEntries(
    Object.entries(fields).filter(
      ([, value]) =>
        value !== "" && value !== null && value !== undefined && !(Array.isArray(value) && value.length === 0),
    ),
  );
}

const namedOf = ({ type, params }: NamedData): Json => filled({ type, params });

function transitionOf({ targets, guard, actions, isReentering, description }: TransitionData, root: string): Json {
  const references = targets.map((path) => `#${path === "" ? root : `${root}.${path}`}`);
  return filled({
    target: references.length === 1 ? references[0] : references,
    guard: guard === null ? null : namedOf(guard),
    actions: actions.map(namedOf),
    reenter: isReentering ? true : null,
    description,
  });
}

/** Transitions by their event or delay, in the order in which they are tried. */
function byKey(
  { transitions }: StateData,
  root: string,
  keyOf: (cause: TransitionData["cause"]) => string | null,
): Json | null {
  const found = transitions.filter(({ cause }) => keyOf(cause) !== null);
  const groups = Map.groupBy(found, ({ cause }) => keyOf(cause) ?? "");
  return groups.size === 0
    ? null
    : Object.fromEntries([...groups].map(([key, list]) => [key, list.map((each) => transitionOf(each, root))]));
}

function stateOf(state: StateData, root: string): Json {
  const { type, states } = state;
  const ofKind = (kind: "always" | "done"): readonly Json[] =>
    state.transitions.filter(({ cause }) => cause.kind === kind).map((each) => transitionOf(each, root));
  return filled({
    description: state.description,
    type: type === "atomic" || type === "compound" ? null : type,
    history: state.history,
    target: type === "history" && state.initial !== null ? `#${root}.${state.initial}` : null,
    initial: type === "compound" ? states.find(({ path }) => path === state.initial)?.key : null,
    entry: state.entry.map(namedOf),
    exit: state.exit.map(namedOf),
    on: byKey(state, root, (cause) => (cause.kind === "event" ? cause.event : null)),
    after: byKey(state, root, (cause) => (cause.kind === "delay" ? String(cause.delay) : null)),
    always: ofKind("always"),
    onDone: ofKind("done"),
    tags: state.tags,
    meta: state.meta,
    states: states.length === 0 ? null : Object.fromEntries(states.map((child) => [child.key, stateOf(child, root)])),
  });
}

/** `context`: the initial one, if it does not depend on the input. */
export function statelyMachineOf(root: StateData, summary: string, context: unknown): Json {
  return {
    key: root.id,
    profile: "xstate",
    ...filled({ context: typeof context === "function" ? null : context }),
    ...stateOf({ ...root, description: root.description === "" ? summary : root.description }, root.id),
  };
}
