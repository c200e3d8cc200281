/**
 * Counts the entries of every Map and Set of this process, grouped by what they hold, to find one that grows. Nothing needs to be
 * registered: V8 enumerates them.
 */
import { Session } from "node:inspector/promises";

export interface CollectionGroup {
  readonly kind: "Map" | "Set";
  /** Type of the keys of a Map, such as `string`, `number` or a class; of a Set, empty. */
  readonly key: string;
  /** Type of the values: a primitive type, the name of a class, or the first fields of a plain object. */
  readonly value: string;
  /** Number of such collections. */
  readonly collections: number;
  /** Their entries together. */
  readonly entries: number;
  /** Entries of the largest one. */
  readonly largest: number;
}

/** Number of fields that describe a plain object. */
const fieldsShownMax = 5;

/**
 * All non-empty Maps and Sets, grouped, the greatest number of entries first. Collects garbage first, so the process pauses: some
 * seconds for each gigabyte of heap.
 */
export async function collectionGroups(): Promise<readonly CollectionGroup[]> {
  const session = new Session();
  session.connect();
  try {
    const found: CollectionGroup[] = [];
    for (const kind of ["Map", "Set"] as const) {
      const { result: prototype } = await session.post("Runtime.evaluate", { expression: `${kind}.prototype` });
      const { objects } = await session.post("Runtime.queryObjects", {
        prototypeObjectId: prototype.objectId ?? "",
      });
      const { result, exceptionDetails } = await session.post("Runtime.callFunctionOn", {
        objectId: objects.objectId ?? "",
        functionDeclaration: String(grouped),
        arguments: [{ value: kind }, { value: fieldsShownMax }],
        returnByValue: true,
      });
      if (exceptionDetails !== undefined) throw new Error(`cannot count ${kind}s: ${exceptionDetails.text}`);
      found.push(...(result.value as readonly CollectionGroup[]));
    }
    return found.toSorted((a, b) => b.entries - a.entries);
  } finally {
    // Also releases what it was given.
    session.disconnect();
  }
}

/** Runs from its source text, on the array of all collections as `this`: it may use nothing of this module. */
function grouped(
  this: readonly (ReadonlyMap<unknown, unknown> | ReadonlySet<unknown>)[],
  kind: "Map" | "Set",
  fieldsMax: number,
): readonly CollectionGroup[] {
  const typeOf = (value: unknown): string => {
    if (value === null || (typeof value !== "object" && typeof value !== "function"))
      return value === null ? "null" : typeof value;
    if (typeof value === "function") return "function";
    const prototype = Object.getPrototypeOf(value) as { readonly constructor?: { readonly name?: string } } | null;
    const name = prototype?.constructor?.name ?? "Object";
    if (name !== "Object" && name !== "") return name;
    const fields = Object.keys(value);
    return `{ ${fields.slice(0, fieldsMax).join(", ")}${fields.length > fieldsMax ? ", …" : ""} }`;
  };
  const groups = new Map<
    string,
    { key: string; value: string; collections: number; entries: number; largest: number }
  >();
  for (const each of this) {
    let size;
    try {
      size = each.size;
    } catch {
      continue; // the prototype itself
    }
    const [first] = size === 0 ? [] : each.entries();
    if (first === undefined) continue;
    const key = kind === "Map" ? typeOf(first[0]) : "";
    const value = typeOf(first[1]);
    const group = groups.get(`${key} ${value}`) ?? { key, value, collections: 0, entries: 0, largest: 0 };
    groups.set(`${key} ${value}`, group);
    group.collections += 1;
    group.entries += size;
    group.largest = Math.max(group.largest, size);
  }
  return Array.from(groups.values(), (group) => ({ kind, ...group }));
}
