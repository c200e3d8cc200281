/**
 * What a watcher wants to hear of: entries by kind of object, any of which may fit; inside an entry every selector must.
 * A selector that means nothing for its kind is refused: SwarmKit ignores it and then sends everything.
 */
import {
  WatchActionKind,
  type Annotations,
  type Node,
  type SelectBy,
  type Service,
  type Task,
  type WatchRequest_WatchEntry,
} from "../proto/gen/messages.ts";
import { taskName } from "./list-filters.ts";
import { invalid, type Refusal } from "./refusal.ts";

export type WatchedTable =
  | "node"
  | "service"
  | "network"
  | "task"
  | "cluster"
  | "secret"
  | "resource"
  | "extension"
  | "config"
  | "volume";

const tables: readonly WatchedTable[] = [
  "node",
  "service",
  "network",
  "task",
  "cluster",
  "secret",
  "config",
  "extension",
  "volume",
];

/** Any object that can be watched, by what selectors look at. */
export type WatchedObject = { readonly id: string };

interface Selector {
  readonly sort: keyof SelectBy;
  readonly fits: (object: WatchedObject) => boolean;
}

export interface WatchFilter {
  readonly table: WatchedTable;
  readonly actions: number;
  readonly selectors: readonly Selector[];
}

const allActions =
  WatchActionKind.WATCH_ACTION_CREATE | WatchActionKind.WATCH_ACTION_UPDATE | WatchActionKind.WATCH_ACTION_REMOVE;

function annotationsOf(table: WatchedTable, object: WatchedObject): Annotations | null {
  if (table === "task" || table === "resource" || table === "extension") return (object as Task).annotations;
  return (object as Service).spec?.annotations ?? null;
}

function nameOf(table: WatchedTable, object: WatchedObject): string {
  if (table === "task") return taskName(object as Task);
  if (table === "node") return (object as Node).description?.hostname ?? "";
  return annotationsOf(table, object)?.name ?? "";
}

type Outcome =
  | { readonly kind: "selector"; readonly selector: Selector }
  | { readonly kind: "refused"; readonly refusal: Refusal };

function refused(message: string): Outcome {
  return { kind: "refused", refusal: invalid(message) };
}

/** Selectors that ask for a field which only one kind has. */
const onlyFor = {
  serviceId: "task",
  nodeId: "task",
  slot: "task",
  desiredState: "task",
  role: "node",
  membership: "node",
} as const satisfies Partial<Record<keyof SelectBy, WatchedTable>>;

const sorts: readonly (keyof SelectBy)[] = [
  "id",
  "idPrefix",
  "name",
  "namePrefix",
  "custom",
  "customPrefix",
  "serviceId",
  "nodeId",
  "slot",
  "desiredState",
  "role",
  "membership",
  "referencedNetworkId",
  "referencedSecretId",
  "referencedConfigId",
  "kind",
];

function selectorOf(table: WatchedTable, by: SelectBy): Outcome {
  const sort = sorts.find((name) => by[name] !== null);
  if (sort === undefined) return refused("a filter without a selector was given");
  const owner = (onlyFor as Partial<Record<keyof SelectBy, WatchedTable>>)[sort];
  if (owner !== undefined && owner !== table)
    return refused(`selector ${sort} does not apply to objects of kind ${table}`);
  const fits = predicate(table, sort, by);
  return fits === null ? refused(`selector ${sort} is not supported`) : { kind: "selector", selector: { sort, fits } };
}

function predicate(table: WatchedTable, sort: keyof SelectBy, by: SelectBy): Selector["fits"] | null {
  const indices = (object: WatchedObject) => annotationsOf(table, object)?.indices ?? [];
  switch (sort) {
    case "id":
      return ({ id }) => id === by.id;
    case "idPrefix":
      return ({ id }) => id.startsWith(by.idPrefix ?? "");
    case "name":
      return (object) => nameOf(table, object) === by.name;
    case "namePrefix":
      return (object) => nameOf(table, object).startsWith(by.namePrefix ?? "");
    case "custom":
      return (object) => indices(object).some(({ key, val }) => key === by.custom?.index && val === by.custom?.value);
    case "customPrefix":
      return (object) =>
        indices(object).some(
          ({ key, val }) => key === by.customPrefix?.index && val.startsWith(by.customPrefix?.value ?? ""),
        );
    case "serviceId":
      return (object) => (object as Task).serviceId === by.serviceId;
    case "nodeId":
      return (object) => (object as Task).nodeId === by.nodeId;
    case "slot":
      return (object) => (object as Task).serviceId === by.slot?.serviceId && (object as Task).slot === by.slot?.slot;
    case "desiredState":
      return (object) => (object as Task).desiredState === by.desiredState;
    case "role":
      return (object) => (object as Node).role === by.role;
    case "membership":
      return (object) => ((object as Node).spec?.membership ?? 0) === by.membership;
    case "referencedNetworkId":
    case "referencedSecretId":
    case "referencedConfigId":
    case "kind":
      return null;
  }
}

export type EntryOutcome =
  | { readonly kind: "filter"; readonly filter: WatchFilter }
  | { readonly kind: "refused"; readonly refusal: Refusal };

/** `isResourceKind`: whether an extension registered that kind. */
export function watchFilter(entry: WatchRequest_WatchEntry, isResourceKind: (kind: string) => boolean): EntryOutcome {
  const refusedEntry = (message: string): EntryOutcome => ({ kind: "refused", refusal: invalid(message) });
  if (entry.kind === "") return refusedEntry("no kind of object specified");
  const builtIn = tables.find((name) => name === entry.kind);
  if (builtIn === undefined && !isResourceKind(entry.kind)) {
    return refusedEntry(
      `unknown kind '${entry.kind}': neither one of ${tables.join(", ")} nor registered by an extension`,
    );
  }
  if ((entry.action & allActions) === 0 || (entry.action & ~allActions) !== 0) {
    return refusedEntry(`unrecognized action ${entry.action}`);
  }
  const table = builtIn ?? "resource";
  const selectors: Selector[] = [];
  for (const by of entry.filters) {
    const outcome = selectorOf(table, by);
    if (outcome.kind === "refused") return outcome;
    if (selectors.some(({ sort }) => sort === outcome.selector.sort))
      return refusedEntry("conflicting filters specified");
    selectors.push(outcome.selector);
  }
  if (builtIn === undefined) {
    selectors.push({ sort: "kind", fits: (object) => (object as { readonly kind?: string }).kind === entry.kind });
  }
  return { kind: "filter", filter: { table, actions: entry.action, selectors } };
}

/** An update counts when the object fits or did before it: otherwise nobody would learn that it no longer does. */
export function isWanted(
  filters: readonly WatchFilter[],
  change: {
    readonly table: string;
    readonly action: WatchActionKind;
    readonly object: WatchedObject;
    readonly old: WatchedObject | null;
  },
): boolean {
  const { table, action, object, old } = change;
  return filters.some(
    (filter) =>
      filter.table === table &&
      (filter.actions & action) !== 0 &&
      (filter.selectors.every(({ fits }) => fits(object)) ||
        (old !== null && filter.selectors.every(({ fits }) => fits(old)))),
  );
}
