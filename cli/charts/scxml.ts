/**
 * A statechart as W3C SCXML with the ECMAScript data model. Interpreters call a function for each action, guard and delay, which the
 * environment supplies: `publish()`, `isPhase({"phase":"resting"})`, and with params that are computed from the event,
 * `remember(_event)`. A delay's function returns an SCXML time such as `500ms`.
 *
 * Differences between SCXML and XState:
 * - `<scxml>` has no transitions, so the root is a state inside it, whose completion leads to a final state beside it.
 * - A delay is an event, sent on entry and cancelled on exit.
 * - An event's name matches longer ones, too (`go` matches `go.far`); where that matters, a condition compares the name. Ids have
 *   `_` between keys, so that names with ids in them are not concerned.
 * - An inner transition of a parallel state would leave it, so such a state gets another one around it.
 *
 * Descriptions, tags and `meta` are attributes of a namespace of their own, which interpreters ignore.
 */
import { allStates, isInner, type NamedData, type StateData, type TransitionData } from "./chart-data.ts";
import { assert } from "../../lib/assert.ts";
import { escaped, escapedText } from "../../lib/escaped.ts";

const namespace = "urn:muster:chart";
/** Added to ids of states that only the document has; no key of a chart ends so. */
const regionsSuffix = "-regions";
const doneSuffix = "-done";
/** XState's. An XML name without colons once its dots are replaced. */
const idSyntax = /^[A-Za-z][A-Za-z0-9.-]*$/;

interface Element {
  readonly name: string;
  readonly attributes: Readonly<Record<string, string | null>>;
  readonly children: readonly Element[];
  readonly text: string;
}

function element(
  name: string,
  attributes: Element["attributes"] = {},
  children: readonly Element[] = [],
  text = "",
): Element {
  return { name, attributes, children, text };
}

function* linesOf({ name, attributes, children, text }: Element): Iterable<string> {
  const start = `<${name}${Object.entries(attributes)
    .map(([key, value]) => (value === null || value === "" ? "" : ` ${key}="${escaped(value)}"`))
    .join("")}`;
  if (text !== "") yield `${start}>${escapedText(text)}</${name}>`;
  else if (children.length === 0) yield `${start}/>`;
  else {
    yield `${start}>`;
    for (const child of children) for (const line of linesOf(child)) yield `  ${line}`;
    yield `</${name}>`;
  }
}

function callOf({ type, params, isComputed }: NamedData): string {
  return `${type}(${isComputed ? "_event" : params === undefined ? "" : JSON.stringify(params)})`;
}

const scripts = (actions: readonly NamedData[]): readonly Element[] =>
  actions.map((action) => element("script", {}, [], callOf(action)));

const isWrapped = (state: StateData): boolean =>
  state.type === "parallel" && state.transitions.some((transition) => isInner(state, transition));

const idOf = ({ id }: StateData): string => id.replaceAll(".", "_");

const delayEvent = (state: StateData, delay: string | number): string => `after.${delay}.${idOf(state)}`;

/** Raised by the interpreter when the state is done. */
const doneEvent = (state: StateData): string => `done.state.${idOf(state)}${isWrapped(state) ? regionsSuffix : ""}`;

/** Whether its states can all be final. */
function canBeDone({ type, states }: StateData): boolean {
  if (type === "compound") return states.some((state) => state.type === "final");
  return type === "parallel" && states.every(canBeDone);
}

class Writer {
  readonly #root: StateData;
  /** Every event that can occur. */
  readonly #events: ReadonlySet<string>;

  constructor(root: StateData) {
    this.#root = root;
    const states = allStates(root);
    for (const { id } of states)
      assert(idSyntax.test(id) && !id.endsWith(regionsSuffix) && !id.endsWith(doneSuffix), `${id} can be an id in XML`);
    this.#events = new Set([
      ...states.flatMap((state) =>
        state.transitions.map((each) => this.#eventOf(state, each)).filter((event) => event !== null),
      ),
      ...states.filter(canBeDone).map(doneEvent),
    ]);
  }

  document(summary: string): Element {
    const root = this.#root;
    const id = idOf(root);
    const final = id + doneSuffix;
    const done = { event: doneEvent(root), target: final };
    const isEnding = canBeDone(root);
    return element(
      "scxml",
      {
        xmlns: "http://www.w3.org/2005/07/scxml",
        "xmlns:muster": namespace,
        version: "1.0",
        datamodel: "ecmascript",
        name: id,
        initial: id,
        "muster:description": summary,
      },
      [
        this.#state(root, isEnding ? [element("transition", { ...done, cond: this.#nameTest(done.event) })] : []),
        ...(isEnding ? [element("final", { id: final })] : []),
      ],
    );
  }

  #eventOf(state: StateData, { cause }: TransitionData): string | null {
    switch (cause.kind) {
      case "event":
        assert(!/^(?:after|done|error)\./.test(cause.event), `${cause.event} is not a name that SCXML uses itself`);
        return cause.event;
      case "delay":
        return delayEvent(state, cause.delay);
      case "done":
        return doneEvent(state);
      case "always":
        return null;
    }
  }

  /** A condition for an event whose name is the beginning of another's. */
  #nameTest(event: string): string | null {
    const isAmbiguous = [...this.#events].some((other) => other.startsWith(`${event}.`));
    return isAmbiguous && !event.endsWith("*") ? `_event.name === '${event}'` : null;
  }

  #target(path: string): string {
    return idOf(this.#root) + (path === "" ? "" : `_${path.replaceAll(".", "_")}`);
  }

  #transition(state: StateData, transition: TransitionData): Element {
    const { guard, actions, targets, description } = transition;
    const event = this.#eventOf(state, transition);
    const tests = [event === null ? null : this.#nameTest(event), guard === null ? null : callOf(guard)];
    const inner = isInner(state, transition);
    // SCXML leaves and enters a state that a transition targets itself, so an inner one enters the initial state instead.
    const isOwn = inner && targets.includes(state.path);
    const entered = isOwn ? (state.initial ?? "") : null;
    return element(
      "transition",
      {
        event,
        cond: tests.filter((test) => test !== null).join(" && "),
        target:
          entered === null ? targets.map((path) => this.#target(path)).join(" ") : entered && this.#target(entered),
        type: inner && state.states.length > 0 ? "internal" : null,
        "muster:target": isOwn ? idOf(state) : null,
        "muster:description": description,
      },
      scripts(actions),
    );
  }

  #state(state: StateData, first: readonly Element[] = []): Element {
    const { type, transitions, entry, exit, meta, states } = state;
    const id = idOf(state);
    if (type === "history")
      return element("history", { id, type: state.history }, [
        element("transition", { target: this.#target(state.initial ?? "") }),
      ]);
    const delays = new Set(transitions.flatMap(({ cause }) => (cause.kind === "delay" ? [cause.delay] : [])));
    const sends = [...delays].map((delay) => {
      const event = delayEvent(state, delay);
      const wait = typeof delay === "number" ? { delay: `${delay}ms` } : { delayexpr: `${delay}()` };
      return element("send", { id: event, event, ...wait });
    });
    const cancels = [...delays].map((delay) => element("cancel", { sendid: delayEvent(state, delay) }));
    const block = (name: string, children: readonly Element[]): readonly Element[] =>
      children.length === 0 ? [] : [element(name, {}, children)];
    const children = states.map((child) => this.#state(child));
    const wrapped = isWrapped(state);
    return element(
      type === "final" ? "final" : type === "parallel" && !wrapped ? "parallel" : "state",
      {
        id,
        initial: type === "compound" && state.initial !== null ? this.#target(state.initial) : null,
        "muster:description": state.description,
        "muster:tags": state.tags.join(" "),
        "muster:meta": meta === null ? null : JSON.stringify(meta),
      },
      [
        ...block("onentry", [...scripts(entry), ...sends]),
        ...block("onexit", [...scripts(exit), ...cancels]),
        ...first,
        ...transitions.map((transition) => this.#transition(state, transition)),
        ...(wrapped ? [element("parallel", { id: id + regionsSuffix }, children)] : children),
      ],
    );
  }
}

/** A document, with its last line end. */
export function scxmlOf(root: StateData, summary: string): string {
  const lines = ['<?xml version="1.0" encoding="UTF-8"?>', ...linesOf(new Writer(root).document(summary))];
  return `${lines.join("\n")}\n`;
}
