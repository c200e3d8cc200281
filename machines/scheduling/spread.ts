/**
 * The order in which nodes get the tasks of one group (manager semantics §4.4): a heap of nodes, below a tree with a
 * branch for each value of each `spread` preference. The branch with the fewest tasks of the service comes first, so that
 * branches end up equal; one that can take no more leaves its share to the others.
 */
import type { Node, PlacementPreference } from "../../proto/gen/messages.ts";
import type { NodeInfo } from "./node-set.ts";

/** How one task is put on a node, and whether the node can take one more. */
export interface Taker {
  readonly serviceId: string;
  fits(info: NodeInfo): boolean;
  take(info: NodeInfo): void;
  /** Failures that count against the node. */
  penalty(info: NodeInfo): number;
}

export interface Pool {
  /** Puts one task on the best node; false when no node can take it. */
  place(): boolean;
}

interface Ranked extends Pool {
  /** Tasks of the service below. */
  readonly service: number;
  /** All tasks below. */
  readonly total: number;
}

interface Candidate {
  readonly info: NodeInfo;
  readonly penalty: number;
  service: number;
  total: number;
  /** Its place in the order of ids. */
  readonly order: number;
}

/** A binary heap over an array. */
class Heap<Item> {
  readonly #items: Item[];
  readonly #isBefore: (a: Item, b: Item) => boolean;

  constructor(items: Item[], isBefore: (a: Item, b: Item) => boolean) {
    this.#items = items;
    this.#isBefore = isBefore;
    for (let at = (items.length >> 1) - 1; at >= 0; at -= 1) this.#sink(at);
  }

  first(): Item | undefined {
    return this.#items[0];
  }

  dropFirst(): void {
    const last = this.#items.pop();
    if (last === undefined || this.#items.length === 0) return;
    this.#items[0] = last;
    this.#sink(0);
  }

  /** After the first one's rank fell. */
  rerankFirst(): void {
    this.#sink(0);
  }

  #sink(from: number): void {
    const items = this.#items;
    const item = items[from] as Item;
    let at = from;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && this.#isBefore(items[child + 1] as Item, items[child] as Item)) child += 1;
      const below = items[child] as Item;
      if (!this.#isBefore(below, item)) break;
      items[at] = below;
      at = child;
    }
    items[at] = item;
  }
}

function isBetterNode(a: Candidate, b: Candidate): boolean {
  if (a.penalty !== b.penalty) return a.penalty < b.penalty;
  if (a.service !== b.service) return a.service < b.service;
  if (a.total !== b.total) return a.total < b.total;
  return a.order < b.order;
}

class Leaf implements Ranked {
  service = 0;
  total = 0;
  readonly #taker: Taker;
  readonly #heap: Heap<Candidate>;

  constructor(nodes: readonly Entry[], taker: Taker) {
    this.#taker = taker;
    const candidates: Candidate[] = [];
    for (const { info, isCandidate, order } of nodes) {
      const service = info.activeOf(taker.serviceId);
      this.service += service;
      this.total += info.activeTasks;
      if (isCandidate) candidates.push({ info, penalty: taker.penalty(info), service, total: info.activeTasks, order });
    }
    this.#heap = new Heap(candidates, isBetterNode);
  }

  place(): boolean {
    for (;;) {
      const best = this.#heap.first();
      if (best === undefined) return false;
      if (!this.#taker.fits(best.info)) {
        this.#heap.dropFirst();
        continue;
      }
      this.#taker.take(best.info);
      best.service += 1;
      best.total += 1;
      this.service += 1;
      this.total += 1;
      this.#heap.rerankFirst();
      return true;
    }
  }
}

interface Child {
  readonly below: Ranked;
  readonly value: string;
}

/** Between branches with equally many of the service, the one with less to do otherwise; then by the label's value. */
function isBetterBranch(a: Child, b: Child): boolean {
  if (a.below.service !== b.below.service) return a.below.service < b.below.service;
  if (a.below.total !== b.below.total) return a.below.total < b.below.total;
  return a.value < b.value;
}

class Branch implements Ranked {
  service = 0;
  total = 0;
  readonly #heap: Heap<Child>;

  constructor(children: Child[]) {
    for (const { below } of children) {
      this.service += below.service;
      this.total += below.total;
    }
    this.#heap = new Heap(children, isBetterBranch);
  }

  place(): boolean {
    for (let child = this.#heap.first(); child !== undefined; child = this.#heap.first()) {
      if (child.below.place()) {
        this.service += 1;
        this.total += 1;
        this.#heap.rerankFirst();
        return true;
      }
      this.#heap.dropFirst();
    }
    return false;
  }
}

type Label = (node: Node) => string;

/** The labels to spread over, in order; a preference that is none of these is passed over. A node without the label has the value "". */
export function spreadLabels(preferences: readonly PlacementPreference[]): readonly Label[] {
  const labels: Label[] = [];
  for (const { spread } of preferences) {
    const [, where, label = ""] = /^(node|engine)\.labels\.(.+)$/i.exec(spread?.spreadDescriptor ?? "") ?? [];
    if (where === undefined) continue;
    if (where.toLowerCase() === "node") labels.push((node) => node.spec?.annotations?.labels[label] ?? "");
    else labels.push((node) => node.description?.engine?.labels[label] ?? "");
  }
  return labels;
}

interface Entry {
  readonly info: NodeInfo;
  readonly isCandidate: boolean;
  readonly order: number;
}

/** `nodes` in the order of their ids. Nodes that are no candidates still count for the balance of branches. */
export function poolOf(
  nodes: readonly NodeInfo[],
  isCandidate: (info: NodeInfo) => boolean,
  preferences: readonly PlacementPreference[],
  taker: Taker,
): Pool {
  const entries = nodes.map((info, order) => ({ info, isCandidate: isCandidate(info), order }));
  return build(entries, spreadLabels(preferences), taker);
}

function build(entries: readonly Entry[], [label, ...rest]: readonly Label[], taker: Taker): Ranked {
  if (label === undefined) return new Leaf(entries, taker);
  const byValue = new Map<string, Entry[]>();
  for (const entry of entries) {
    const value = entry.info.node === null ? "" : label(entry.info.node);
    const found = byValue.get(value);
    if (found === undefined) byValue.set(value, [entry]);
    else found.push(entry);
  }
  return new Branch(Array.from(byValue, ([value, below]) => ({ value, below: build(below, rest, taker) })));
}
