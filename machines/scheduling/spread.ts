/**
 * The order in which nodes get the tasks of one group (manager semantics §4.4): a tree with a branch for each value of each
 * `spread` preference, and heaps of nodes as leaves. The branch with the fewest tasks of the service comes first, so that
 * branches end up equal; the share of a full branch goes to the others.
 */
import { siteOf } from "../node.ts";
import type { Node, PlacementPreference } from "../../proto/gen/messages.ts";
import type { NodeInfo } from "./tracked.ts";

/** Places one task on a node, and checks whether the node fits one more. */
interface Taker {
  readonly serviceId: string;
  fits(info: NodeInfo): boolean;
  take(info: NodeInfo): void;
  /** Failures that count against the node. */
  penalty(info: NodeInfo): number;
}

interface Pool {
  /** Places one task on the best node; false if no node fits. */
  place(): boolean;
}

interface Ranked extends Pool {
  /** Tasks of the service below. */
  readonly service: number;
  /** All tasks below. */
  readonly total: number;
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

  /** Restores the order after the first item's rank got worse. */
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

/** A node's rank as one number: failures, then tasks of the service, then all tasks. Smaller is better. */
const serviceUnit = 2 ** 22;
const penaltyUnit = 2 ** 20 * serviceUnit;
/** Keeps the sum exact; no node has four million tasks. */
const penaltyMax = 2 ** 10;

function rankOf(penalty: number, service: number, total: number): number {
  return (
    Math.min(penalty, penaltyMax) * penaltyUnit +
    Math.min(service, 2 ** 20 - 1) * serviceUnit +
    Math.min(total, serviceUnit - 1)
  );
}

/**
 * Nodes that are equal in all preferences. The heap uses typed arrays: otherwise placing a few tasks of a service on 100,000
 * nodes would create as many objects.
 */
class Leaf implements Ranked {
  service = 0;
  total = 0;
  readonly #taker: Taker;
  /** Ordered by id; at equal rank the first is better. */
  readonly #candidates: NodeInfo[] = [];
  readonly #ranks: Float64Array;
  /** Indices in `#candidates`. */
  readonly #heap: Int32Array;
  #size: number;

  constructor(nodes: readonly NodeInfo[], isCandidate: (info: NodeInfo) => boolean, taker: Taker) {
    this.#taker = taker;
    const ranks = new Float64Array(nodes.length);
    for (const info of nodes) {
      const service = info.activeOf(taker.serviceId);
      this.service += service;
      this.total += info.activeTasks;
      if (!isCandidate(info)) continue;
      ranks[this.#candidates.length] = rankOf(taker.penalty(info), service, info.activeTasks);
      this.#candidates.push(info);
    }
    this.#ranks = ranks;
    this.#size = this.#candidates.length;
    this.#heap = new Int32Array(this.#size);
    for (let at = 0; at < this.#size; at += 1) this.#heap[at] = at;
    for (let at = (this.#size >> 1) - 1; at >= 0; at -= 1) this.#sink(at);
  }

  place(): boolean {
    while (this.#size > 0) {
      const best = this.#heap[0] as number;
      const info = this.#candidates[best] as NodeInfo;
      if (!this.#taker.fits(info)) {
        this.#size -= 1;
        this.#heap[0] = this.#heap[this.#size] as number;
        this.#sink(0);
        continue;
      }
      this.#taker.take(info);
      this.#ranks[best] = (this.#ranks[best] as number) + serviceUnit + 1;
      this.service += 1;
      this.total += 1;
      this.#sink(0);
      return true;
    }
    return false;
  }

  #sink(from: number): void {
    const heap = this.#heap;
    const ranks = this.#ranks;
    const size = this.#size;
    if (from >= size) return;
    const item = heap[from] as number;
    const rank = ranks[item] as number;
    let at = from;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= size) break;
      let below = heap[child] as number;
      let belowRank = ranks[below] as number;
      if (child + 1 < size) {
        const other = heap[child + 1] as number;
        const otherRank = ranks[other] as number;
        if (otherRank < belowRank || (otherRank === belowRank && other < below)) {
          child += 1;
          below = other;
          belowRank = otherRank;
        }
      }
      if (belowRank > rank || (belowRank === rank && below > item)) break;
      heap[at] = below;
      at = child;
    }
    heap[at] = item;
  }
}

interface Child {
  readonly below: Ranked;
  readonly value: string;
}

/** Fewer tasks of the service, then fewer tasks at all, then the label's value. */
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

/** The labels to spread over, in order; other preferences are ignored. A node without the label has the value "". */
export function spreadLabels(preferences: readonly PlacementPreference[]): readonly Label[] {
  const labels: Label[] = [];
  for (const { spread } of preferences) {
    if (spread?.spreadDescriptor.toLowerCase() === "node.site") {
      labels.push(siteOf);
      continue;
    }
    const [, where, label = ""] = /^(node|engine)\.labels\.(.+)$/i.exec(spread?.spreadDescriptor ?? "") ?? [];
    if (where === undefined) continue;
    if (where.toLowerCase() === "node") labels.push((node) => node.spec?.annotations?.labels[label] ?? "");
    else labels.push((node) => node.description?.engine?.labels[label] ?? "");
  }
  return labels;
}

/** `nodes`: ordered by id. Nodes that are not candidates still count for the balance of branches. */
export function poolOf(
  nodes: readonly NodeInfo[],
  isCandidate: (info: NodeInfo) => boolean,
  preferences: readonly PlacementPreference[],
  taker: Taker,
): Pool {
  return build(nodes, isCandidate, spreadLabels(preferences), taker);
}

function build(
  nodes: readonly NodeInfo[],
  isCandidate: (info: NodeInfo) => boolean,
  [label, ...rest]: readonly Label[],
  taker: Taker,
): Ranked {
  if (label === undefined) return new Leaf(nodes, isCandidate, taker);
  const byValue = new Map<string, NodeInfo[]>();
  for (const info of nodes) {
    const value = info.node === null ? "" : label(info.node);
    const found = byValue.get(value);
    if (found === undefined) byValue.set(value, [info]);
    else found.push(info);
  }
  return new Branch(
    Array.from(byValue, ([value, below]) => ({ value, below: build(below, isCandidate, rest, taker) })),
  );
}
