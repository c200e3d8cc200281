/** Reads SCXML, as `muster charts --format scxml` writes it, back into the chart that it was written from. */
import { SaxesParser } from "saxes";
import type { NamedData, StateData, TransitionData } from "../../cli/charts/chart-data.ts";
import { assert } from "../../lib/assert.ts";

interface Element {
  readonly name: string;
  readonly attributes: Readonly<Record<string, string>>;
  readonly children: Element[];
  text: string;
}

function parsed(xml: string): Element {
  const parser = new SaxesParser({ xmlns: true });
  const top: Element = { name: "", attributes: {}, children: [], text: "" };
  const open = [top];
  parser.on("error", (error) => {
    throw error;
  });
  parser.on("opentag", ({ name, attributes }) => {
    const values = Object.entries(attributes).map(([key, { value }]) => [key, value] as const);
    const element: Element = { name, attributes: Object.fromEntries(values), children: [], text: "" };
    open.at(-1)?.children.push(element);
    open.push(element);
  });
  parser.on("text", (text) => {
    const element = open.at(-1);
    if (element !== undefined) element.text += text;
  });
  parser.on("closetag", () => open.pop());
  parser.write(xml).close();
  return top;
}

const named = ({ children }: Element, name: string): readonly Element[] =>
  children.filter((child) => child.name === name);

/** `isPhase({"phase":"resting"})` */
function called(text: string): NamedData {
  const [, type, args] = /^(\w+)\((.*)\)$/s.exec(text.trim()) ?? [];
  assert(type !== undefined && args !== undefined, `"${text}" is a call`);
  if (args === "_event") return { type, isComputed: true };
  return args === "" ? { type, isComputed: false } : { type, params: JSON.parse(args) as unknown, isComputed: false };
}

class Reader {
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
  }

  #path(id: string): string {
    return id === this.#root ? "" : id.slice(this.#root.length + 1).replaceAll("_", ".");
  }

  #actions(of: Element): readonly NamedData[] {
    return named(of, "script").map(({ text }) => called(text));
  }

  #transition(state: string, element: Element, delays: ReadonlyMap<string, string | number>): TransitionData {
    const {
      event,
      cond = "",
      target,
      type,
      "muster:target": own,
      "muster:description": description = "",
    } = element.attributes;
    const guard = cond.replace(/^_event\.name === '[^']*'(?: && )?/, "");
    const targets = (own ?? target ?? "").split(" ").filter((id) => id !== "");
    const delay = delays.get(event ?? "");
    const isInside = targets.every((id) => id === state || id.startsWith(`${state}_`));
    return {
      cause:
        event === undefined
          ? { kind: "always" }
          : delay !== undefined
            ? { kind: "delay", delay }
            : event.startsWith("done.state.")
              ? { kind: "done" }
              : { kind: "event", event },
      guard: guard === "" ? null : called(guard),
      targets: targets.map((id) => this.#path(id)),
      actions: this.#actions(element),
      // Otherwise a transition leaves its state in any case.
      isReentering: target !== undefined && isInside && type !== "internal",
      description,
    };
  }

  state(element: Element): StateData {
    const { id = "", initial, "muster:description": description = "", "muster:meta": meta } = element.attributes;
    const [regions] = named(element, "parallel").filter(({ attributes }) => attributes["id"] === `${id}-regions`);
    const isParallel = element.name === "parallel" || regions !== undefined;
    const states = (regions ?? element).children
      .filter(({ name }) => ["state", "parallel", "final", "history"].includes(name))
      .map((child) => this.state(child));
    const blocks = (name: string): readonly Element[] => named(element, name);
    const delays = new Map(
      blocks("onentry")
        .flatMap((block) => named(block, "send"))
        .map(({ attributes: { event = "", delay, delayexpr = "" } }) => [
          event,
          delay === undefined ? delayexpr.replace("()", "") : Number.parseInt(delay, 10),
        ]),
    );
    const isHistory = element.name === "history";
    const [kept] = isHistory ? named(element, "transition") : [];
    const first = isHistory ? kept?.attributes["target"] : initial;
    return {
      path: this.#path(id),
      key: id.split("_").at(-1) ?? "",
      id: id.replaceAll("_", "."),
      type: isHistory
        ? "history"
        : element.name === "final"
          ? "final"
          : isParallel
            ? "parallel"
            : states.length > 0
              ? "compound"
              : "atomic",
      history: isHistory ? (element.attributes["type"] === "deep" ? "deep" : "shallow") : null,
      description,
      meta: meta === undefined ? null : (JSON.parse(meta) as Readonly<Record<string, unknown>>),
      tags: (element.attributes["muster:tags"] ?? "").split(" ").filter((tag) => tag !== ""),
      entry: blocks("onentry").flatMap((block) => this.#actions(block)),
      exit: blocks("onexit").flatMap((block) => this.#actions(block)),
      initial: first === undefined ? null : this.#path(first),
      transitions: isHistory
        ? []
        : named(element, "transition")
            .filter(({ attributes: { target } }) => target !== `${this.#root}-done`)
            .map((each) => this.#transition(id, each, delays)),
      states,
    };
  }
}

/** Throws for text that is not well-formed, and for documents of other writers. */
export function readScxml(xml: string): StateData {
  const [document] = named(parsed(xml), "scxml");
  const root = document?.children.find(({ attributes }) => attributes["id"] === document.attributes["initial"]);
  assert(document !== undefined && root !== undefined, "the document has a root state");
  return new Reader(root.attributes["id"] ?? "").state(root);
}
