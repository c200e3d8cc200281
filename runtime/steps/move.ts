/**
 * The states that a set of transitions leaves and enters, by SCXML's algorithm as XState applies it, for charts without history
 * states. It depends on the chart alone, so `planned.ts` asks once for each set and each combination of active states.
 */
import type { AnyTransitionDefinition } from "xstate";
import { childrenOf, type AnyNode } from "../observation/transition-ids.ts";

/** A transition, with the chart's states instead of XState's general types. */
export interface Transition {
  readonly source: AnyNode;
  readonly target: readonly AnyNode[] | undefined;
  readonly reenter: boolean;
  readonly actions: readonly unknown[];
  readonly guard: unknown;
  readonly definition: AnyTransitionDefinition;
}

export interface Move {
  /** Those that are not preempted by another one. */
  readonly transitions: readonly Transition[];
  /** In the order in which they are left. */
  readonly left: readonly AnyNode[];
  /** In the order in which they are entered. */
  readonly entered: readonly AnyNode[];
  /** Entered states whose initial transition is taken, too. */
  readonly byDefault: ReadonlySet<AnyNode>;
}

export const parentOf = (node: AnyNode): AnyNode | undefined => node.parent as AnyNode | undefined;

/** Below `above`; below undefined is the root alone, whose parent is undefined. */
function isBelow(node: AnyNode, above: AnyNode | undefined): boolean {
  let at = node;
  for (let parent = parentOf(at); parent !== undefined && parent !== above; parent = parentOf(at)) at = parent;
  return parentOf(at) === above;
}

/** Ancestors below `end`, the nearest first. */
function ancestorsOf(node: AnyNode, end?: AnyNode): readonly AnyNode[] {
  const ancestors: AnyNode[] = [];
  if (node === end) return ancestors;
  for (let at = parentOf(node); at !== undefined && at !== end; at = parentOf(at)) ancestors.push(at);
  return ancestors;
}

/** The states below it are left and entered; undefined: the root, too. */
function domainOf({ reenter, source, target = [] }: Transition): AnyNode | undefined {
  if (!reenter && target.every((each) => each === source || isBelow(each, source))) return source;
  const all = [...target.slice(1), source];
  const common = ancestorsOf(target[0] ?? source).find((above) => all.every((each) => isBelow(each, above)));
  if (common !== undefined || reenter) return common;
  return source.machine.root as unknown as AnyNode;
}

function leftBy(transitions: readonly Transition[], active: ReadonlySet<AnyNode>): ReadonlySet<AnyNode> {
  const left = new Set<AnyNode>();
  for (const transition of transitions) {
    if (transition.target === undefined || transition.target.length === 0) continue;
    const domain = domainOf(transition);
    if (domain !== undefined && transition.reenter && transition.source === domain) left.add(domain);
    for (const node of active) if (isBelow(node, domain)) left.add(node);
  }
  return left;
}

/** Transitions that leave the same states exclude each other: the one of the innermost state remains, else the first. */
function withoutConflicts(transitions: readonly Transition[], active: ReadonlySet<AnyNode>): readonly Transition[] {
  const kept = new Set<Transition>();
  for (const transition of transitions) {
    const left = leftBy([transition], active);
    const rivals = [...kept].filter((other) => [...leftBy([other], active)].some((node) => left.has(node)));
    if (!rivals.every((other) => isBelow(transition.source, other.source))) continue;
    for (const rival of rivals) kept.delete(rival);
    kept.add(transition);
  }
  return [...kept];
}

class Entering {
  readonly entered = new Set<AnyNode>();
  readonly byDefault = new Set<AnyNode>();

  add(transition: Transition): void {
    const domain = domainOf(transition);
    const { reenter, source, target = [] } = transition;
    for (const each of target) {
      if (source !== each || source !== domain || reenter) this.#addByDefault(each);
      this.#addInitial(each);
    }
    for (const each of target) {
      const ancestors = [...ancestorsOf(each, domain)];
      if (domain?.type === "parallel") ancestors.push(domain);
      this.#addAncestors(ancestors, parentOf(source) === undefined && reenter ? undefined : domain);
    }
  }

  #addByDefault(node: AnyNode): void {
    this.entered.add(node);
    this.byDefault.add(node);
  }

  /** Enters the states that are active initially in a state. */
  #addInitial(node: AnyNode): void {
    if (node.type === "compound") {
      const [first] = node.initial.target as unknown as readonly AnyNode[];
      if (first === undefined) return;
      this.#addByDefault(first);
      this.#addInitial(first);
      this.#addAncestors(ancestorsOf(first, node), undefined);
    } else if (node.type === "parallel") this.#addRegions(node, (region) => this.#addByDefault(region));
  }

  #addRegions(parallel: AnyNode, add: (region: AnyNode) => void): void {
    for (const region of childrenOf(parallel)) {
      if ([...this.entered].some((node) => isBelow(node, region))) continue;
      add(region);
      this.#addInitial(region);
    }
  }

  #addAncestors(ancestors: readonly AnyNode[], domain: AnyNode | undefined): void {
    for (const each of ancestors) {
      if (domain === undefined || isBelow(each, domain)) this.entered.add(each);
      if (each.type === "parallel") this.#addRegions(each, (region) => this.entered.add(region));
    }
  }
}

export function moveOf(selected: readonly Transition[], active: readonly AnyNode[]): Move {
  const before = new Set(active);
  const transitions = withoutConflicts(selected, before);
  const entering = new Entering();
  for (const transition of transitions) entering.add(transition);
  return {
    transitions,
    left: [...leftBy(transitions, before)].toSorted((a, b) => b.order - a.order),
    entered: [...entering.entered].toSorted((a, b) => a.order - b.order),
    byDefault: entering.byDefault,
  };
}
