/** The objects that an id filter can select. */
import { idLength } from "../../runtime/ids.ts";
import type { Store, Tables } from "../../runtime/store/store.ts";

/** All objects, or, if every prefix is a whole id, only these: a client that inspects each of many would otherwise scan all each time. */
export function* candidates<Name extends "node" | "service" | "task">(
  store: Store,
  table: Name,
  filters: { readonly idPrefixes: readonly string[] } | null,
): Iterable<Tables[Name]> {
  const ids = filters?.idPrefixes ?? [];
  if (ids.length === 0 || ids.some(({ length }) => length !== idLength)) {
    yield* store.all(table);
    return;
  }
  for (const id of new Set(ids)) {
    const found = store.get(table, id);
    if (found !== undefined) yield found;
  }
}
