/** The built-in functions of Go templates, and those that Docker adds to its `--format`. */
import { valueMax } from "./budget.ts";
import { isMap, isTrue, jsonText, kindOf, sprint, textOf } from "./print.ts";
import { sprintf } from "./printf.ts";

/** Throws Error with the reason; the interpreter adds which call failed, and where. */
export type TemplateFunction = (...values: readonly unknown[]) => unknown;
export type TemplateFunctions = Readonly<Record<string, TemplateFunction>>;

function wanted(values: readonly unknown[], min: number, max = min): void {
  if (values.length >= min && values.length <= max) return;
  const count = min === max ? String(min) : max === Number.POSITIVE_INFINITY ? `at least ${min}` : `${min} to ${max}`;
  throw new Error(`wrong number of arguments: want ${count}, got ${values.length}`);
}

function text(value: unknown): string {
  if (typeof value === "string") return value;
  throw new Error(`wrong type: expected string, got ${kindOf(value)}`);
}

function whole(value: unknown): number {
  if (typeof value === "number" && Number.isInteger(value)) return value;
  throw new Error(`wrong type: expected int, got ${kindOf(value)}`);
}

/** Only scalars of the same kind can be compared; nil can be compared with anything. */
function equal(a: unknown, b: unknown): boolean {
  const [left, right] = [a ?? null, b ?? null];
  if (left === null || right === null) return left === right;
  if (typeof left === "object" || typeof right === "object") throw new Error("incomparable types for comparison");
  if (typeof left !== typeof right) throw new Error("incompatible types for comparison");
  return left === right;
}

/** Negative, zero or positive. */
function ordered(a: unknown, b: unknown): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === "string" && typeof b === "string") return a < b ? -1 : a > b ? 1 : 0;
  throw new Error("incompatible types for comparison");
}

function index(values: readonly unknown[]): unknown {
  wanted(values, 1, Number.POSITIVE_INFINITY);
  let [held] = values;
  for (const key of values.slice(1)) {
    if (isMap(held)) held = held.get(text(key)) ?? "";
    else if (Array.isArray(held)) held = (held as readonly unknown[])[within(whole(key), held.length - 1)];
    else if (typeof held === "string")
      held = Buffer.from(held, "utf8")[within(whole(key), Buffer.byteLength(held) - 1)];
    else if (held === null || held === undefined) throw new Error("index of untyped nil");
    else throw new Error(`can't index item of type ${kindOf(held)}`);
  }
  return held;
}

function within(at: number, max: number): number {
  if (at < 0 || at > max) throw new Error(`index out of range: ${at}`);
  return at;
}

function slice(values: readonly unknown[]): unknown {
  wanted(values, 1, 4);
  const [held, ...bounds] = values;
  if (typeof held !== "string" && !Array.isArray(held)) throw new Error(`can't slice item of type ${kindOf(held)}`);
  if (typeof held === "string" && bounds.length > 2) throw new Error("cannot 3-index slice a string");
  // Strings are indexed in bytes, as in Go.
  const bytes = typeof held === "string" ? Buffer.from(held, "utf8") : null;
  const length = bytes?.length ?? held.length;
  const [from = 0, to = length, most = length] = bounds.map((bound) => within(whole(bound), length));
  if (from > to || to > most) throw new Error(`invalid slice index: ${from} > ${to}`);
  return bytes === null ? (held as readonly unknown[]).slice(from, to) : bytes.subarray(from, to).toString("utf8");
}

function size(value: unknown): number {
  if (typeof value === "string") return Buffer.byteLength(value);
  if (Array.isArray(value)) return value.length;
  if (isMap(value)) return value.size;
  throw new Error(`len of type ${kindOf(value)}`);
}

const htmlEscapes: Readonly<Record<string, string>> = {
  '"': "&#34;",
  "'": "&#39;",
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  "\0": "\ufffd",
};

/** `and` and `or` are built into the interpreter, because they short-circuit. */
export const goFunctions: TemplateFunctions = {
  not: (...values) => {
    wanted(values, 1);
    return !isTrue(values[0]);
  },
  len: (...values) => {
    wanted(values, 1);
    return size(values[0]);
  },
  index: (...values) => index(values),
  slice: (...values) => slice(values),
  print: (...values) => sprint(values),
  println: (...values) => `${values.map(textOf).join(" ")}\n`,
  printf: (...values) => {
    wanted(values, 1, Number.POSITIVE_INFINITY);
    return sprintf(text(values[0]), values.slice(1));
  },
  html: (...values) => sprint(values).replaceAll(/["'&<>\0]/g, (char) => htmlEscapes[char] ?? char),
  js: (...values) =>
    JSON.stringify(sprint(values))
      .slice(1, -1)
      .replaceAll("'", "\\'")
      .replaceAll(/[<>&=]/g, hexEscape),
  urlquery: (...values) => encodeURIComponent(sprint(values)).replaceAll("%20", "+"),
  eq: (...values) => {
    wanted(values, 2, Number.POSITIVE_INFINITY);
    return values.slice(1).some((value) => equal(values[0], value));
  },
  ne: (...values) => {
    wanted(values, 2);
    return !equal(values[0], values[1]);
  },
  lt: (...values) => {
    wanted(values, 2);
    return ordered(values[0], values[1]) < 0;
  },
  le: (...values) => {
    wanted(values, 2);
    return ordered(values[0], values[1]) <= 0;
  },
  gt: (...values) => {
    wanted(values, 2);
    return ordered(values[0], values[1]) > 0;
  },
  ge: (...values) => {
    wanted(values, 2);
    return ordered(values[0], values[1]) >= 0;
  },
};

function hexEscape(char: string): string {
  return `\\u${char.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** Throws Error if the text would exceed `valueMax` characters. */
export function joined(texts: readonly string[], separator: string): string {
  let size = separator.length * Math.max(0, texts.length - 1);
  for (const each of texts) size += each.length;
  if (size > valueMax) throw new Error(`a value exceeds ${valueMax} characters`);
  return texts.join(separator);
}

/** Maximum padding. */
const padMax = 10_000;

export const dockerFunctions: TemplateFunctions = {
  json: (...values) => {
    wanted(values, 1);
    return jsonText(values[0]);
  },
  split: (...values) => {
    wanted(values, 2);
    return text(values[0]).split(text(values[1]));
  },
  join: (...values) => {
    wanted(values, 2);
    const [items, between] = values;
    if (!Array.isArray(items)) throw new Error(`wrong type: expected a list, got ${kindOf(items)}`);
    return joined(items.map(textOf), text(between));
  },
  title: (...values) => {
    wanted(values, 1);
    return text(values[0]).replaceAll(
      /(^|[^\p{L}\p{Nd}_'])(\p{L})/gu,
      (_, before: string, letter: string) => before + letter.toUpperCase(),
    );
  },
  lower: (...values) => {
    wanted(values, 1);
    return text(values[0]).toLowerCase();
  },
  upper: (...values) => {
    wanted(values, 1);
    return text(values[0]).toUpperCase();
  },
  pad: (...values) => {
    wanted(values, 3);
    const padded = text(values[0]);
    const [before, after] = [whole(values[1]), whole(values[2])].map((count) =>
      " ".repeat(Math.min(Math.max(count, 0), padMax)),
    );
    return padded === "" ? padded : `${before}${padded}${after}`;
  },
  truncate: (...values) => {
    wanted(values, 2);
    const length = whole(values[1]);
    return length < 0 ? text(values[0]) : text(values[0]).slice(0, length);
  },
};
