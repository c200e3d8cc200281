/** Names of a chart's states, transitions and actions, prepared once so that a step only looks them up. */
import type { AnyStateMachine, AnyTransitionDefinition } from "xstate";
import { childrenOf, nameOf, pathOf, rootOf, transitionsOf, type AnyNode } from "./transition-ids.ts";

/** The names of one or more transitions of a step. */
export interface Taken {
  readonly transitions: readonly string[];
  readonly guards: readonly string[];
  readonly effects: readonly string[];
  readonly unexpected: boolean;
}

/** Active states. The same states are the same object. */
export interface Active {
  readonly nodes: readonly AnyNode[];
  readonly paths: readonly string[];
}

interface Known {
  readonly taken: Taken;
  /** By the states before and after, if it enters or leaves any. */
  readonly moves: Map<Active, Map<Active, Taken>> | null;
}

interface DelayName {
  readonly delay: string;
  readonly state: string;
}

interface DelayedRaise {
  readonly type?: string;
  readonly id?: unknown;
  readonly delay?: unknown;
}

export const nothingTaken: Taken = { transitions: [], guards: [], effects: [], unexpected: false };

/** An action of XState itself, such as the timer of an `after`. */
const isOwnName = (name: string): boolean => !name.startsWith("xstate.") && name !== "reportUnexpected";

const namesOf = (actions: readonly unknown[]): readonly string[] => actions.map(nameOf).filter(isOwnName);

const isAtomic = ({ type }: AnyNode): boolean => type === "atomic" || type === "final";

function isWithin(node: AnyNode, ancestor: AnyNode): boolean {
  for (let at = node.parent as AnyNode | undefined; at !== undefined; at = at.parent as AnyNode | undefined)
    if (at === ancestor) return true;
  return false;
}

/** SCXML's transition domain: the states below it are left and entered. */
function domainOf({ source, target, reenter }: AnyTransitionDefinition): AnyNode {
  const from = source as unknown as AnyNode;
  const targets = (target ?? []) as unknown as readonly AnyNode[];
  if (reenter !== true && targets.every((each) => each === from || isWithin(each, from))) return from;
  let domain: AnyNode = from;
  while (domain.parent !== undefined) {
    domain = domain.parent as unknown as AnyNode;
    const common = domain;
    if (targets.every((each) => isWithin(each, common))) break;
  }
  return domain;
}

export class ChartNames {
  readonly initial: Active;
  /** Effects of entering the initial states. */
  readonly started: Taken;
  readonly #transitions = new Map<AnyTransitionDefinition, Known>();
  readonly #active = new Map<string, Active>();
  /** By the only atomic state. */
  readonly #alone = new Map<AnyNode, Active>();
  readonly #paths = new Map<AnyNode, string>();
  /** By the id of the delayed event. */
  readonly #delays = new Map<string, DelayName>();

  constructor(machine: AnyStateMachine) {
    const initial: AnyNode[] = [];
    const enter = (node: AnyNode): void => {
      initial.push(node);
      if (node.type === "parallel") for (const child of childrenOf(node)) enter(child);
      if (node.type === "compound") for (const target of node.initial.target as readonly AnyNode[]) enter(target);
    };
    const list = (node: AnyNode): void => {
      this.#paths.set(node, pathOf(node));
      for (const { eventType, delay } of node.after)
        this.#delays.set(eventType, { delay: String(delay), state: pathOf(node) });
      for (const { id, guard, actions, transition } of transitionsOf(node)) {
        const taken: Taken = {
          transitions: [id],
          guards: guard === "" ? [] : [guard],
          effects: actions.filter(isOwnName),
          unexpected: false,
        };
        this.#transitions.set(transition, { taken, moves: transition.target === undefined ? null : new Map() });
      }
      for (const child of childrenOf(node)) list(child);
    };
    list(rootOf(machine));
    for (const action of Object.values(machine.implementations.actions)) {
      const { type, id, delay } = action as DelayedRaise;
      if (type === "xstate.raise" && typeof id === "string" && typeof delay === "string")
        this.#delays.set(id, { delay, state: "" });
    }
    enter(rootOf(machine));
    this.initial = this.active(initial);
    this.started = { ...nothingTaken, effects: initial.flatMap(({ entry }) => namesOf(entry)) };
  }

  active(nodes: readonly AnyNode[]): Active {
    let only: AnyNode | null = null;
    for (const node of nodes) {
      if (!isAtomic(node)) continue;
      if (only !== null) return this.#activeOf(nodes);
      only = node;
    }
    if (only === null) return this.#activeOf(nodes);
    let active = this.#alone.get(only);
    if (active === undefined) this.#alone.set(only, (active = this.#activeOf(nodes)));
    return active;
  }

  #activeOf(nodes: readonly AnyNode[]): Active {
    let raw = "";
    for (const node of nodes) if (isAtomic(node)) raw += `${this.#paths.get(node)} `;
    const known = this.#active.get(raw);
    if (known !== undefined) return known;
    const paths = raw.trimEnd().split(" ").toSorted();
    const key = `${paths.join(" ")} `;
    // The order of the states depends on the way into them.
    const active = (key === raw ? undefined : this.#active.get(key)) ?? { nodes, paths };
    this.#active.set(key, active);
    this.#active.set(raw, active);
    return active;
  }

  delay(id: string): DelayName {
    return this.#delays.get(id) ?? { delay: id, state: "" };
  }

  taken(transitions: readonly AnyTransitionDefinition[], before: Active, after: Active): Taken {
    const [only] = transitions;
    if (only === undefined) return nothingTaken;
    if (transitions.length > 1) return joined(transitions.map((transition) => this.#taken(transition, before, after)));
    return this.#taken(only, before, after);
  }

  #taken(transition: AnyTransitionDefinition, before: Active, after: Active): Taken {
    const known = this.#transitions.get(transition);
    if (known === undefined) return { ...nothingTaken, unexpected: transition.eventType === "*" };
    const { taken, moves } = known;
    if (moves === null) return taken;
    let from = moves.get(before);
    if (from === undefined) moves.set(before, (from = new Map()));
    let move = from.get(after);
    if (move === undefined) {
      move = { ...taken, effects: [...left(transition, before), ...taken.effects, ...entered(transition, after)] };
      from.set(after, move);
    }
    return move;
  }
}

/** Deepest first, as XState leaves them. */
function left(transition: AnyTransitionDefinition, before: Active): readonly string[] {
  return moved(transition, before)
    .toReversed()
    .flatMap(({ exit }) => namesOf(exit));
}

function entered(transition: AnyTransitionDefinition, after: Active): readonly string[] {
  return moved(transition, after).flatMap(({ entry }) => namesOf(entry));
}

function moved(transition: AnyTransitionDefinition, { nodes }: Active): readonly AnyNode[] {
  const domain = domainOf(transition);
  return nodes.filter((node) => isWithin(node, domain)).toSorted((one, other) => one.order - other.order);
}

/** Several transitions of one step, in order. */
export function joined(parts: readonly Taken[]): Taken {
  return {
    transitions: parts.flatMap(({ transitions }) => transitions),
    guards: parts.flatMap(({ guards }) => guards),
    effects: parts.flatMap(({ effects }) => effects),
    unexpected: parts.some(({ unexpected }) => unexpected),
  };
}
