/**
 * Prints values as Go does. The JavaScript type determines the Go kind: a plain object is a struct with fixed fields; a `Map`
 * is a map with arbitrary keys, printed in key order; an array is a list. `undefined` and `null` are nil pointers; an
 * `EmptyField` is a field that JSON omits.
 */

import { EmptyField, fieldValue } from "./empty.ts";

/** Numeric keys are sorted as text, too: these values came through JSON. */
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

/** False for what Go's `if` treats as false: nil, zero, an empty string, list or map. */
export function isTrue(value: unknown): boolean {
  if (Array.isArray(value)) return value.length > 0;
  if (isMap(value)) return value.size > 0;
  return value !== null && value !== undefined && value !== false && value !== 0 && value !== "";
}

/** The value's kind, for errors. */
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

/** Integers in full; other numbers as Go's `%v`, which switches to an exponent at 21 digits. */
function numberText(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "+Inf" : "-Inf";
  return String(value).replace(/e([+-])(\d)$/, "e$10$2");
}

/** Go's `Sprint`: a space between two neighbours if neither is a string. */
export function sprint(values: readonly unknown[]): string {
  let text = "";
  for (const [at, value] of values.entries()) {
    if (at > 0 && typeof value !== "string" && typeof values[at - 1] !== "string") text += " ";
    text += textOf(value);
  }
  return text;
}

/** JSON as Docker writes it: a struct's fields in order, a map's keys sorted, and no HTML escaping. */
export function jsonText(value: unknown, indent?: number): string {
  return JSON.stringify(plain(value) ?? null, null, indent);
}

/** A part of many values that `jsonText` is given: prepared once instead of each time. Only for JSON. */
export function jsonPart(value: unknown): unknown {
  const prepared = plain(value);
  return { toJSON: () => prepared };
}

/** Without maps and empty fields. A replacer in `JSON.stringify` would take twice as long for a long list. */
function plain(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(plain);
  if (value instanceof EmptyField) return undefined;
  if (isMap(value)) return Object.fromEntries(sortedEntries(value).map(([key, held]) => [key, plain(held)]));
  if ("toJSON" in value) return value;
  const result: Record<string, unknown> = {};
  for (const [key, held] of Object.entries(value)) {
    const kept = plain(held);
    if (kept !== undefined) result[key] = kept;
  }
  return result;
}
