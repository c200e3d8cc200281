/**
 * Finds the watchers that match a change. Filters with a complete value of an indexed field are looked up by that value; only
 * the kind's other filters are tested one by one.
 */
import { fitsChange, type IndexKey, type WatchedChange, type WatchedTable, type WatchFilter } from "./filter.ts";
import type { Field, WatchedObject } from "./selectors.ts";

interface Wish<Watcher> {
  readonly filter: WatchFilter;
  readonly watcher: Watcher;
}

type Wishes<Watcher> = Set<Wish<Watcher>>;

interface Kind<Watcher> {
  /** By field, then by value. */
  readonly keyed: Map<Field, Map<string, Wishes<Watcher>>>;
  readonly rest: Wishes<Watcher>;
}

export class WatchIndex<Watcher> {
  readonly #kinds = new Map<string, Kind<Watcher>>();
  readonly #wishes = new Map<Watcher, readonly Wish<Watcher>[]>();

  /** Each watcher is added only once. */
  add(watcher: Watcher, filters: readonly WatchFilter[]): void {
    const wishes = filters.map((filter) => ({ filter, watcher }));
    this.#wishes.set(watcher, wishes);
    for (const wish of wishes) this.#place(wish.filter.table, wish.filter.key).add(wish);
  }

  remove(watcher: Watcher): void {
    for (const wish of this.#wishes.get(watcher) ?? []) {
      const { table, key } = wish.filter;
      const place = this.#place(table, key);
      place.delete(wish);
      if (key === null || place.size > 0) continue;
      const byValue = this.#kinds.get(table)?.keyed.get(key.field);
      byValue?.delete(key.value);
      if (byValue?.size === 0) this.#kinds.get(table)?.keyed.delete(key.field);
    }
    this.#wishes.delete(watcher);
  }

  /** Calls `onFound` for each watcher that wants the change, once for each of its matching filters. */
  find(change: WatchedChange, onFound: (watcher: Watcher) => void): void {
    const kind = this.#kinds.get(change.table);
    if (kind === undefined) return;
    ask(kind.rest, change, onFound);
    for (const [field, byValue] of kind.keyed) {
      const value = valueOf(change.object, field);
      if (value !== undefined) ask(byValue.get(value), change, onFound);
      if (change.old === null || change.old === change.object) continue;
      // Watchers of the old value must learn that the object no longer has it.
      const before = valueOf(change.old, field);
      if (before !== value && before !== undefined) ask(byValue.get(before), change, onFound);
    }
  }

  #place(table: WatchedTable, key: IndexKey | null): Wishes<Watcher> {
    let kind = this.#kinds.get(table);
    if (kind === undefined) this.#kinds.set(table, (kind = { keyed: new Map(), rest: new Set() }));
    if (key === null) return kind.rest;
    let byValue = kind.keyed.get(key.field);
    if (byValue === undefined) kind.keyed.set(key.field, (byValue = new Map()));
    let wishes = byValue.get(key.value);
    if (wishes === undefined) byValue.set(key.value, (wishes = new Set()));
    return wishes;
  }
}

function valueOf(object: WatchedObject, field: Field): string | undefined {
  return (object as Partial<Readonly<Record<Field, string>>>)[field];
}

function ask<Watcher>(
  wishes: Wishes<Watcher> | undefined,
  change: WatchedChange,
  onFound: (watcher: Watcher) => void,
): void {
  if (wishes === undefined) return;
  for (const { filter, watcher } of wishes) if (fitsChange(filter, change)) onFound(watcher);
}
