/**
 * Values as Go prints them. Data is told apart by how it is held: a plain object is a struct, whose fields are known
 * beforehand; a `Map` is a map, which has any keys and is shown in their order; an array is a list. `undefined` and `null`
 * are pointers to nothing; an `EmptyField` is one that JSON leaves out.
 */

import { fieldValue } from "./empty.ts";

/** Numbers inside of maps' keys too sort as texts: what is here came through JSON. */
export function sortedEntries(map: ReadonlyMap<unknown, unknown>): readonly (readonly [string, unknown])[] {
  return [...map]
    .map(([key, value]) => [String(key), value] as const)
    .toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
}

export function isStruct(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Map);
}

export function isMap(value: unknown): value is ReadonlyMap<string, unknown> {
  return value instanceof Map;
}

/** False for what Go's `if` takes for false: nothing, zero, an empty text, list or map. */
export function isTrue(value: unknown): boolean {
  if (Array.isArray(value)) return value.length > 0;
  if (isMap(value)) return value.size > 0;
  return value !== null && value !== undefined && value !== false && value !== 0 && value !== "";
}

/** What an error calls it. */
export function kindOf(value: unknown): string {
  if (value === null || value === undefined) return "nil";
  if (Array.isArray(value)) return "list";
  if (isMap(value)) return "map";
  if (typeof value === "boolean") return "bool";
  if (typeof value === "number") return Number.isInteger(value) ? "int" : "float64";
  return typeof value === "object" ? "struct" : typeof value;
}

/** `%v` */
export function textOf(value: unknown): string {
  if (value === null || value === undefined) return "<nil>";
  if (typeof value === "number") return numberText(value);
  if (Array.isArray(value)) return `[${value.map(textOf).join(" ")}]`;
  if (isMap(value))
    return `map[${sortedEntries(value)
      .map(([key, held]) => `${key}:${textOf(held)}`)
      .join(" ")}]`;
  if (isStruct(value))
    return `{${Object.values(value)
      .map((held) => textOf(fieldValue(held)))
      .join(" ")}}`;
  return typeof value === "string" ? value : String(value as boolean);
}

/** Whole numbers as they are; others as Go's `%v`, which turns to an exponent at 21 digits. */
function numberText(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "+Inf" : "-Inf";
  return String(value).replace(/e([+-])(\d)$/, "e$10$2");
}

/** Go's `Sprint`: a blank between two neighbours of which neither is a text. */
export function sprint(values: readonly unknown[]): string {
  let text = "";
  for (const [at, value] of values.entries()) {
    if (at > 0 && typeof value !== "string" && typeof values[at - 1] !== "string") text += " ";
    text += textOf(value);
  }
  return text;
}

/** As Docker writes JSON: a struct's fields in their order, a map's keys sorted, and no character escaped for HTML. */
export function jsonText(value: unknown, indent?: number): string {
  return JSON.stringify(
    value ?? null,
    (_, held: unknown) => (isMap(held) ? Object.fromEntries(sortedEntries(held)) : held),
    indent,
  );
}
