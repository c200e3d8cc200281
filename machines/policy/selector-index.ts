/**
 * Which things match which selectors, kept as both come, change and go. A change asks only the selectors, or the things,
 * that share a label with it; only selectors that hold without any label (such as `!has(x)`) are asked about every new one.
 *
 * I1: after every call, what matches is what `matchesSelector` says of each pair, and each change was told once.
 */
import { matchesSelector, type Labels, type Selector } from "./selector.ts";

/** One label that is required, with its value or with any; null: it may hold without a label. */
type Requirement = { readonly key: string; readonly value: string | null };

function requirements(selector: Selector): readonly Requirement[] | null {
  switch (selector.kind) {
    case "all":
    case "not":
      return null;
    case "has":
    case "contains":
    case "starts":
    case "ends":
      return [{ key: selector.key, value: null }];
    case "in":
      return selector.values.map((value) => ({ key: selector.key, value }));
    case "or": {
      const all = selector.of.map(requirements);
      return all.some((each) => each === null) ? null : all.flatMap((each) => each ?? []);
    }
    case "and": {
      // The narrowest of what must hold anyway: a value rather than a key, and few rather than many.
      let best: readonly Requirement[] | null = null;
      for (const part of selector.of) {
        const each = requirements(part);
        if (each !== null && (best === null || weight(each) < weight(best))) best = each;
      }
      return best;
    }
  }
}

/** A bare key has many values; so it weighs as much as a long list of them. */
function weight(list: readonly Requirement[]): number {
  return list.reduce((sum, { value }) => sum + (value === null ? 100 : 1), 0);
}

const keyTerm = (key: string): string => key;
/** No label's key has a line end. */
const pairTerm = (key: string, value: string): string => `${key}\n${value}`;

function termsOf(labels: Labels): string[] {
  return Object.entries(labels).flatMap(([key, value]) => [keyTerm(key), pairTerm(key, value)]);
}

interface Item {
  labels: Labels;
  readonly matches: Set<string>;
}

interface Query {
  readonly selector: Selector;
  readonly terms: readonly string[] | null;
  readonly matches: Set<string>;
}

class Postings {
  readonly #lists = new Map<string, Set<string>>();

  get(term: string): ReadonlySet<string> | undefined {
    return this.#lists.get(term);
  }

  add(term: string, id: string): void {
    const list = this.#lists.get(term);
    if (list === undefined) this.#lists.set(term, new Set([id]));
    else list.add(id);
  }

  remove(term: string, id: string): void {
    const list = this.#lists.get(term);
    list?.delete(id);
    if (list?.size === 0) this.#lists.delete(term);
  }
}

export type MatchListener = (selectorId: string, itemId: string, matches: boolean) => void;

export class SelectorIndex {
  readonly #items = new Map<string, Item>();
  readonly #queries = new Map<string, Query>();
  readonly #itemsByTerm = new Postings();
  readonly #queriesByTerm = new Postings();
  /** Those that may hold without a label. */
  readonly #loose = new Set<string>();
  readonly #onChange: MatchListener;
  /** How many pairs were asked so far: what a change cost. */
  asked = 0;

  constructor(onChange: MatchListener) {
    this.#onChange = onChange;
  }

  /** Ids of the items that match it; nothing for an unknown one. */
  matching(selectorId: string): ReadonlySet<string> {
    return this.#queries.get(selectorId)?.matches ?? new Set();
  }

  /** Ids of the selectors that an item matches. */
  matchedBy(itemId: string): ReadonlySet<string> {
    return this.#items.get(itemId)?.matches ?? new Set();
  }

  setItem(id: string, labels: Labels): void {
    const item = this.#items.get(id) ?? { labels: {}, matches: new Set<string>() };
    const isNew = !this.#items.has(id);
    const before = new Set(termsOf(item.labels));
    const after = new Set(termsOf(labels));
    const touched = [...before]
      .filter((term) => !after.has(term))
      .concat([...after].filter((term) => !before.has(term)));
    if (!isNew && touched.length === 0) return;
    this.#items.set(id, item);
    item.labels = labels;
    for (const term of touched) {
      if (after.has(term)) this.#itemsByTerm.add(term, id);
      else this.#itemsByTerm.remove(term, id);
    }
    // A changed item: those that it matched, and those that name any label that it has, as a second label may be what counts.
    const candidates = new Set<string>([...item.matches, ...this.#loose]);
    for (const term of after) for (const query of this.#queriesByTerm.get(term) ?? []) candidates.add(query);
    for (const queryId of candidates) this.#ask(queryId, id, item);
  }

  removeItem(id: string): void {
    const item = this.#items.get(id);
    if (item === undefined) return;
    for (const term of termsOf(item.labels)) this.#itemsByTerm.remove(term, id);
    this.#items.delete(id);
    for (const queryId of item.matches) {
      this.#queries.get(queryId)?.matches.delete(id);
      this.#onChange(queryId, id, false);
    }
  }

  /** An id stands for one selector for ever: a second call with it does nothing. */
  addSelector(id: string, selector: Selector): void {
    if (this.#queries.has(id)) return;
    const terms =
      requirements(selector)?.map(({ key, value }) => (value === null ? keyTerm(key) : pairTerm(key, value))) ?? null;
    const query: Query = { selector, terms, matches: new Set() };
    this.#queries.set(id, query);
    if (terms === null) {
      this.#loose.add(id);
      for (const [itemId, item] of this.#items) this.#ask(id, itemId, item);
      return;
    }
    for (const term of terms) {
      this.#queriesByTerm.add(term, id);
      for (const itemId of this.#itemsByTerm.get(term) ?? []) this.#ask(id, itemId, this.#items.get(itemId) as Item);
    }
  }

  /** Tells nothing: who takes it out knows what matched. */
  removeSelector(id: string): void {
    const query = this.#queries.get(id);
    if (query === undefined) return;
    this.#queries.delete(id);
    this.#loose.delete(id);
    for (const term of query.terms ?? []) this.#queriesByTerm.remove(term, id);
    for (const itemId of query.matches) this.#items.get(itemId)?.matches.delete(id);
  }

  #ask(queryId: string, itemId: string, item: Item): void {
    const query = this.#queries.get(queryId);
    if (query === undefined) return;
    this.asked += 1;
    const matches = matchesSelector(query.selector, item.labels);
    if (matches === item.matches.has(queryId)) return;
    if (matches) {
      item.matches.add(queryId);
      query.matches.add(itemId);
    } else {
      item.matches.delete(queryId);
      query.matches.delete(itemId);
    }
    this.#onChange(queryId, itemId, matches);
  }
}
