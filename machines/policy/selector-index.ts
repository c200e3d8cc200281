/**
 * Tracks which items match which selectors, as both are added, changed and removed. A change compares only selectors and items
 * that share a label; only selectors that can match without a label (such as `!has(x)`) are compared with every changed item.
 *
 * I1: after every call, the matches equal `matchesSelector` for each pair, and each change was reported once.
 */
import { matchesSelector, type Labels, type Selector } from "./selector.ts";

/** A required label, with a value or (null) with any. */
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
      // The most selective part: a value rather than a key, and few values rather than many.
      let best: readonly Requirement[] | null = null;
      for (const part of selector.of) {
        const each = requirements(part);
        if (each !== null && (best === null || weight(each) < weight(best))) best = each;
      }
      return best;
    }
  }
}

/** A bare key can have many values, so it weighs as much as a long list of values. */
function weight(list: readonly Requirement[]): number {
  return list.reduce((sum, { value }) => sum + (value === null ? 100 : 1), 0);
}

const keyTerm = (key: string): string => key;
/** Label keys never contain a line feed. */
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

type MatchListener = (selectorId: string, itemId: string, matches: boolean) => void;

export class SelectorIndex {
  readonly #items = new Map<string, Item>();
  readonly #queries = new Map<string, Query>();
  readonly #itemsByTerm = new Postings();
  readonly #queriesByTerm = new Postings();
  /** Selectors that can match without a label. */
  readonly #loose = new Set<string>();
  readonly #onChange: MatchListener;
  /** Number of comparisons so far: the cost of changes. */
  asked = 0;

  constructor(onChange: MatchListener) {
    this.#onChange = onChange;
  }

  /** Ids of the items that match the selector; empty for an unknown one. */
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
    // The selectors that it matched, and those with any of its labels: an unchanged label may be the indexed one.
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

  /** An id always means the same selector: repeated calls have no effect. */
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

  /** Reports no changes: the caller knows the matches. */
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
