/**
 * The part of a context or an event that may leave the process: the fields that the chart lists in `shows`, as JSON.
 *
 * Values that JSON lacks become objects with one `$` key (`{"$map": …}`), so that `restored` gives the same value back. Bytes are
 * shown as their number only. A field that is too large or too deep is cut: `{"$cut": true}`.
 *
 * A path that ends in `$same` shows of a text only whether it is empty, and whether it equals another one, by a digest: for a text
 * that may quote a user's data, and by which a chart decides.
 */

/** Characters of one context or event; the largest that a chart shows in practice has a tenth of it. Fields beyond it are cut. */
export const shownCharsMax = 16_384;
/** Levels of nesting; contexts have three or four. */
const depthMax = 12;

interface Restored {
  readonly fields: Readonly<Record<string, unknown>>;
  /** False if a field was cut, or has bytes. */
  readonly isWhole: boolean;
}

/** The last key of a path to a text whose content is not shown. */
const sameKey = "$same";
/** A text in place of one whose content is not shown. */
const standIn = /^same:(\d+)$/;

/** FNV-1a, 32 bits: enough to tell apart the few texts of one actor, and too short to find a text by it. */
function digest(text: string): number {
  const [, known] = standIn.exec(text) ?? [];
  // A restored text is shown as it was before.
  if (known !== undefined) return Number(known);
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return hash >>> 0;
}

/** Thrown and caught here only. */
const tooLarge = Symbol("too large");

interface Budget {
  chars: number;
}

/** Characters that a number and a flag spend. */
const numberChars = 8;
const boolChars = 5;
const cut = `{"$cut":true}`;

type Plain = string | number | boolean | null | readonly Plain[] | { readonly [key: string]: Plain };

/** Paths by their first key; the rest of each. */
type Tree = ReadonlyMap<string, Tree> | "whole";

/** A field of contexts or events that is shown, or of which parts are. */
interface ShownField {
  readonly key: string;
  /** The key as JSON, with its colon. */
  readonly name: string;
  readonly rest: Tree;
}

const fieldLists = new WeakMap<readonly string[], readonly ShownField[]>();

function fieldsOf(paths: readonly string[]): readonly ShownField[] {
  let fields = fieldLists.get(paths);
  if (fields === undefined) {
    const tree = grown(paths);
    if (tree === "whole") throw new Error("a path of a shown field is empty");
    fields = Array.from(tree, ([key, rest]) => ({ key, name: `${JSON.stringify(key)}:`, rest }));
    fieldLists.set(paths, fields);
  }
  return fields;
}

function grown(paths: readonly string[]): Tree {
  const rests = new Map<string, string[]>();
  for (const path of paths) {
    if (path === "") return "whole";
    const dot = path.indexOf(".");
    const key = dot === -1 ? path : path.slice(0, dot);
    const rest = dot === -1 ? "" : path.slice(dot + 1);
    rests.set(key, [...(rests.get(key) ?? []), rest]);
  }
  return new Map(Array.from(rests, ([key, rest]) => [key, grown(rest)]));
}

/** JSON object of the fields at `paths` that `from` has, in the order of `paths`. The array of paths must not change. */
export function shown(from: object, paths: readonly string[]): string {
  const budget: Budget = { chars: shownCharsMax };
  let json = "";
  for (const { key, name, rest } of fieldsOf(paths)) {
    const value = (from as Readonly<Record<string, unknown>>)[key];
    if (value === undefined) continue;
    json += json === "" ? `{${name}` : `,${name}`;
    json += valueJson(value, rest, budget);
  }
  return json === "" ? "{}" : `${json}}`;
}

/** Most fields are numbers and flags, which need no object in between: a process records each of its steps. */
function valueJson(value: unknown, tree: Tree, budget: Budget): string {
  if (typeof value === "boolean" && budget.chars >= boolChars) {
    budget.chars -= boolChars;
    return value ? "true" : "false";
  }
  if (Number.isInteger(value) && value !== 0 && budget.chars >= numberChars) {
    budget.chars -= numberChars;
    return `${value as number}`;
  }
  const left = budget.chars;
  try {
    return JSON.stringify(plain(value, tree, budget, 0));
  } catch (error) {
    if (error !== tooLarge) throw error;
    budget.chars = left;
    return cut;
  }
}

function spend(budget: Budget, chars: number): void {
  budget.chars -= chars;
  if (budget.chars < 0) throw tooLarge;
}

function plain(value: unknown, tree: Tree, budget: Budget, depth: number): Plain {
  switch (typeof value) {
    case "string":
      if (tree !== "whole") return tree.has(sameKey) && value !== "" ? { $same: digest(value) } : "";
      spend(budget, value.length + 2);
      return value;
    case "number":
      spend(budget, numberChars);
      return Number.isFinite(value) && !Object.is(value, -0)
        ? value
        : { $number: Object.is(value, -0) ? "-0" : `${value}` };
    case "boolean":
      spend(budget, boolChars);
      return value;
    case "bigint":
      spend(budget, 24);
      return { $bigint: `${value}` };
    case "object":
      if (depth === depthMax) throw tooLarge;
      spend(budget, 4);
      return value === null ? null : structure(value, tree, budget, depth + 1);
    default:
      // Functions and symbols are not data.
      return { $undefined: true };
  }
}

function structure(value: object, tree: Tree, budget: Budget, depth: number): Plain {
  if (ArrayBuffer.isView(value)) return { $bytes: value.byteLength };
  if (Array.isArray(value)) return value.map((item: unknown) => plain(item, tree, budget, depth));
  if (value instanceof Set) return { $set: Array.from(value, (item) => plain(item, tree, budget, depth)) };
  if (value instanceof Map)
    return {
      $map: Array.from(value, ([key, item]) => [plain(key, "whole", budget, depth), plain(item, tree, budget, depth)]),
    };
  const fields: Record<string, Plain> = {};
  for (const key of tree === "whole" ? Object.keys(value) : tree.keys()) {
    const item = (value as Readonly<Record<string, unknown>>)[key];
    if (item === undefined) continue;
    spend(budget, key.length + 4);
    // A key that looks like a tag is not one.
    const name = key.startsWith("$") ? `$${key}` : key;
    const field = plain(item, tree === "whole" ? tree : (tree.get(key) ?? "whole"), budget, depth);
    if (name === "__proto__") Object.defineProperty(fields, name, { value: field, enumerable: true });
    else fields[name] = field;
  }
  return fields;
}

/** The inverse of `shown`. Throws on what `shown` did not write. */
export function restored(json: string): Restored {
  let isWhole = true;
  const value = (part: unknown): unknown => {
    if (typeof part !== "object" || part === null) return part;
    if (Array.isArray(part)) return part.map(value);
    const entries = Object.entries(part as Readonly<Record<string, unknown>>);
    const [tag, content] = entries.length === 1 ? (entries[0] ?? []) : [];
    switch (tag) {
      case "$map":
        return new Map(
          (content as readonly (readonly [unknown, unknown])[]).map(([key, item]) => [value(key), value(item)]),
        );
      case "$set":
        return new Set((content as readonly unknown[]).map(value));
      case "$bigint":
        return BigInt(content as string);
      case "$number":
        return Number(content);
      case "$same":
        return `same:${content as number}`;
      case "$undefined":
        return undefined;
      case "$cut":
        isWhole = false;
        return undefined;
      case "$bytes":
        isWhole = false;
        // Not of that length, which a file may forge; a value that is not whole decides nothing.
        return new Uint8Array();
      default:
        return Object.fromEntries(
          entries.map(([key, item]) => [key.startsWith("$") ? key.slice(1) : key, value(item)]),
        );
    }
  };
  const parsed: unknown = JSON.parse(json);
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed))
    throw new Error("cannot restore shown fields: expected a JSON object");
  // In place of all fields: they could not be written.
  const keys = Object.keys(parsed);
  if (keys.length === 1 && keys[0] === "$cut") return { fields: {}, isWhole: false };
  const fields = Object.fromEntries(Object.entries(parsed).map(([key, item]) => [key, value(item)]));
  return { fields, isWhole };
}
