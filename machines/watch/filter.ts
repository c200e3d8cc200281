/**
 * A watcher's filter: entries by kind of object. A change matches if any entry does; an entry matches if all its selectors do.
 *
 * F1: a selector that does not apply to its kind, or that no object can ever match, is refused. SwarmKit accepts both and
 *     then sends everything, or nothing.
 */
import {
  NodeRole,
  NodeSpec_Membership,
  TaskState,
  WatchActionKind,
  type SelectBy,
  type WatchRequest_WatchEntry,
} from "../../proto/gen/messages.ts";
import { invalid, type Refusal } from "../refusal.ts";
import { selectors, type Field, type SelectorSort, type WatchedObject, type WatchedTable } from "./selectors.ts";

export type { WatchedObject, WatchedTable } from "./selectors.ts";

/** The built-in kinds, named like their tables; any other is a kind of resources. */
export const watchedKinds: readonly WatchedTable[] = [
  "node",
  "service",
  "network",
  "task",
  "cluster",
  "secret",
  "config",
  "extension",
  "volume",
  "resource",
];

/** Far more than there are kinds; each entry costs time on every change of its kind. */
export const watchEntriesMax = 1_000;

/** A field and the value that it must have for the filter to match: a key for the index. */
export interface IndexKey {
  readonly field: Field;
  readonly value: string;
}

interface Selector {
  readonly sort: SelectorSort;
  readonly fits: (object: WatchedObject) => boolean;
}

export interface WatchFilter {
  readonly table: WatchedTable;
  /** A mask of WatchActionKind. */
  readonly actions: number;
  readonly selectors: readonly Selector[];
  /** Null if no selector gives a complete value of an indexed field. */
  readonly key: IndexKey | null;
}

export interface WatchedChange {
  readonly table: string;
  readonly action: WatchActionKind;
  readonly object: WatchedObject;
  readonly old: WatchedObject | null;
}

/** Create, update and remove. */
const everyAction: number =
  WatchActionKind.WATCH_ACTION_CREATE | WatchActionKind.WATCH_ACTION_UPDATE | WatchActionKind.WATCH_ACTION_REMOVE;

const sorts = Object.keys(selectors) as readonly SelectorSort[];

/** The selector's name in the protocol. */
function wireName(sort: SelectorSort): string {
  return sort.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function isKnown(values: Readonly<Record<string, number>>, value: number | null): boolean {
  return value !== null && Object.values(values).includes(value);
}

/** Why no object can ever match the selector; null if one can. */
function impossibility(kind: string, by: SelectBy, sort: SelectorSort): string | null {
  switch (sort) {
    case "desiredState":
      return isKnown(TaskState, by.desiredState) ? null : `unknown task state ${by.desiredState}`;
    case "role":
      return isKnown(NodeRole, by.role) ? null : `unknown role ${by.role}`;
    case "membership":
      return isKnown(NodeSpec_Membership, by.membership) ? null : `unknown membership ${by.membership}`;
    case "custom":
    case "customPrefix": {
      const named = by[sort]?.kind ?? "";
      return named === "" || named === kind ? null : `it selects objects of kind ${named}`;
    }
    case "id":
    case "idPrefix":
    case "name":
    case "namePrefix":
    case "serviceId":
    case "nodeId":
    case "slot":
    case "referencedNetworkId":
    case "referencedSecretId":
    case "referencedConfigId":
    case "kind":
      return null;
  }
}

type SelectorOutcome =
  | { readonly kind: "selector"; readonly selector: Selector; readonly key: IndexKey | null }
  | { readonly kind: "refused"; readonly refusal: Refusal };

function refused(message: string): { readonly kind: "refused"; readonly refusal: Refusal } {
  return { kind: "refused", refusal: invalid(message) };
}

function selectorOf(kind: string, table: WatchedTable, by: SelectBy): SelectorOutcome {
  const sort = sorts.find((name) => by[name] !== null);
  if (sort === undefined) return refused(`filter for objects of kind ${kind} has no selector`);
  const { tables, matcher, key } = selectors[sort];
  const isOwnKind = table === "resource" && kind !== "resource";
  // The entry already names the kind of such resources.
  if ((tables !== null && !tables.includes(table)) || (sort === "kind" && isOwnKind)) {
    return refused(`selector ${wireName(sort)} does not apply to objects of kind ${kind}`);
  }
  const why = impossibility(kind, by, sort);
  if (why !== null) return refused(`selector ${wireName(sort)} can never match an object of kind ${kind}: ${why}`);
  return { kind: "selector", selector: { sort, fits: matcher(table, by) }, key: key?.(by) ?? null };
}

type EntryOutcome =
  | { readonly kind: "filter"; readonly filter: WatchFilter }
  | { readonly kind: "refused"; readonly refusal: Refusal };

/** `isResourceKind`: whether an extension registered the kind, or Muster itself stores such resources. */
export function watchFilter(entry: WatchRequest_WatchEntry, isResourceKind: (kind: string) => boolean): EntryOutcome {
  const { kind, action } = entry;
  if (kind === "") return refused("no kind of object specified");
  const builtIn = watchedKinds.find((name) => name === kind);
  if (builtIn === undefined && !isResourceKind(kind)) {
    return refused(`unknown kind '${kind}': expected ${watchedKinds.join(", ")}, or a kind registered by an extension`);
  }
  if ((action & everyAction) === 0 || (action & ~everyAction) !== 0) return refused(`unrecognized action ${action}`);
  const table = builtIn ?? "resource";
  const wanted: Selector[] = [];
  let key: IndexKey | null = null;
  for (const by of entry.filters) {
    const outcome = selectorOf(kind, table, by);
    if (outcome.kind === "refused") return outcome;
    if (wanted.some(({ sort }) => sort === outcome.selector.sort)) return refused("conflicting filters specified");
    wanted.push(outcome.selector);
    key ??= outcome.key;
  }
  if (builtIn === undefined) {
    wanted.push({ sort: "kind", fits: (object) => (object as { readonly kind?: string }).kind === kind });
    key ??= { field: "kind", value: kind };
  }
  return { kind: "filter", filter: { table, actions: action, selectors: wanted, key } };
}

function fitsAll(filter: WatchFilter, object: WatchedObject): boolean {
  for (const { fits } of filter.selectors) if (!fits(object)) return false;
  return true;
}

/** An update counts if the object matches, or matched before: otherwise watchers would not learn that it no longer does. */
export function fitsChange(filter: WatchFilter, { table, action, object, old }: WatchedChange): boolean {
  if (filter.table !== table || (filter.actions & action) === 0) return false;
  return fitsAll(filter, object) || (old !== null && old !== object && fitsAll(filter, old));
}

export function isWanted(filters: readonly WatchFilter[], change: WatchedChange): boolean {
  for (const filter of filters) if (fitsChange(filter, change)) return true;
  return false;
}
