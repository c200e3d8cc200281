/**
 * Schema of Compose values as data, and its check. The kind of a value (scalar, list, mapping) selects the shape, so that each
 * error is one message with file, line and key.
 */
import { mistake, under, type MappingNode, type Node, type ScalarNode } from "./located.ts";

type ScalarShape =
  | { readonly kind: "text" }
  /** Strings, and numbers and booleans that are used as strings. */
  | { readonly kind: "word" }
  | { readonly kind: "whole"; readonly min?: number; readonly max?: number }
  | { readonly kind: "number" }
  | { readonly kind: "boolean" }
  | { readonly kind: "choice"; readonly of: readonly string[] }
  | { readonly kind: "nothing" };

interface ObjectShape {
  readonly kind: "object";
  readonly keys: Readonly<Record<string, Shape>>;
  readonly required?: readonly string[];
}

interface MapShape {
  readonly kind: "map";
  readonly of: Shape;
  /** Pattern of the keys. */
  readonly names?: RegExp;
}

interface ListShape {
  readonly kind: "list";
  readonly of: Shape;
}

/** At most one shape of each kind: the value's kind selects it. */
interface EitherShape {
  readonly kind: "either";
  readonly of: readonly Exclude<Shape, EitherShape>[];
}

export type Shape = ScalarShape | ObjectShape | MapShape | ListShape | EitherShape | { readonly kind: "any" };

export const text: Shape & { kind: "text" } = { kind: "text" };
export const word: Shape & { kind: "word" } = { kind: "word" };
export const whole: Shape & { kind: "whole" } = { kind: "whole" };
export const number: Shape & { kind: "number" } = { kind: "number" };
export const boolean: Shape & { kind: "boolean" } = { kind: "boolean" };
export const nothing: Shape & { kind: "nothing" } = { kind: "nothing" };
export const any: Shape & { kind: "any" } = { kind: "any" };

export function choice(...of: readonly string[]): ScalarShape {
  return { kind: "choice", of };
}

export function listOf(of: Shape): ListShape {
  return { kind: "list", of };
}

export function mapOf(of: Shape, names?: RegExp): MapShape {
  return names === undefined ? { kind: "map", of } : { kind: "map", of, names };
}

export function object(keys: Readonly<Record<string, Shape>>, ...required: readonly string[]): ObjectShape {
  return { kind: "object", keys, required };
}

export function either(...of: readonly Exclude<Shape, EitherShape>[]): EitherShape {
  return { kind: "either", of };
}

/** Maximum edit distance for a suggestion. */
const typoDistanceMax = 2;

function isScalarShape(shape: Shape): shape is ScalarShape {
  return !["object", "map", "list", "either", "any"].includes(shape.kind);
}

function described(shape: Shape): string {
  switch (shape.kind) {
    case "text":
    case "word":
      return "a string";
    case "whole": {
      const { min, max } = shape;
      const bounds = min === undefined ? "" : max === undefined ? ` of at least ${min}` : ` from ${min} to ${max}`;
      return `a whole number${bounds}`;
    }
    case "number":
      return "a number";
    case "boolean":
      return "true or false";
    case "choice":
      return shape.of.length === 1 ? `'${shape.of[0]}'` : `one of ${shape.of.join(", ")}`;
    case "nothing":
      return "empty";
    case "list":
      return "a list";
    case "object":
    case "map":
      return "a mapping";
    case "either":
      return shape.of.map(described).join(" or ");
    case "any":
      return "anything";
  }
}

function shown(node: Node): string {
  if (node.kind !== "scalar") return `a ${node.kind}`;
  if (node.value === null) return "nothing";
  return typeof node.value === "string" ? `'${node.value}'` : String(node.value);
}

function isWhole(value: ScalarNode["value"], min = Number.NEGATIVE_INFINITY, max = Number.POSITIVE_INFINITY): boolean {
  const amount = typeof value === "string" && /^[-+]?\d+$/.test(value) ? Number(value) : value;
  return typeof amount === "number" && Number.isSafeInteger(amount) && amount >= min && amount <= max;
}

function fitsScalar(value: ScalarNode["value"], shape: ScalarShape): boolean {
  switch (shape.kind) {
    case "text":
      return typeof value === "string";
    case "word":
      return value !== null;
    case "whole":
      return isWhole(value, shape.min, shape.max);
    case "number":
      return typeof value === "number" || (typeof value === "string" && /^[-+]?\d*\.?\d+$/.test(value));
    case "boolean":
      return typeof value === "boolean" || (typeof value === "string" && /^(?:true|false)$/i.test(value));
    case "choice":
      return typeof value === "string" && shape.of.includes(value);
    case "nothing":
      return value === null;
  }
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (const [i, left] of Array.from(a).entries()) {
    const next = [i + 1];
    for (const [j, right] of Array.from(b).entries()) {
      next.push(Math.min((row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1, (row[j] ?? 0) + (left === right ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}

function suggestion(key: string, known: readonly string[]): string {
  const ranked = known.map((name) => ({ name, distance: editDistance(key, name) }));
  const [closest] = ranked.toSorted((a, b) => a.distance - b.distance);
  const isClose = closest !== undefined && closest.distance <= typoDistanceMax && closest.distance < key.length;
  return isClose ? `; did you mean '${closest.name}'?` : "";
}

function checkObject(node: MappingNode, { keys, required = [] }: ObjectShape, path: string): void {
  for (const [key, { at, value }] of node.entries) {
    // Extension keys belong to the user.
    if (key.startsWith("x-")) continue;
    const shape = Object.hasOwn(keys, key) ? keys[key] : undefined;
    if (shape === undefined) {
      throw mistake(at, under(path, key), `is not supported in a Compose file${suggestion(key, Object.keys(keys))}`);
    }
    check(value, shape, under(path, key));
  }
  for (const key of required) {
    if (!node.entries.has(key) && node.tag === null) throw mistake(node.at, path, `requires '${key}'`);
  }
}

function fits(node: Node, shape: Shape): boolean {
  if (shape.kind === "any") return true;
  if (shape.kind === "list") return node.kind === "list";
  if (shape.kind === "object" || shape.kind === "map") return node.kind === "mapping";
  if (shape.kind === "either") return shape.of.some((branch) => fits(node, branch));
  return node.kind === "scalar" && fitsScalar(node.value, shape);
}

/** Throws UserError for the first invalid value. */
export function check(node: Node, shape: Shape, path: string): void {
  // A value to remove may have any form.
  if (node.tag === "reset") return;
  const chosen = shape.kind === "either" ? shape.of.find((branch) => fits(node, branch)) : shape;
  if (chosen === undefined || !fits(node, chosen)) {
    const isSameKind = shape.kind === "either" && node.kind === "scalar" && shape.of.some(isScalarShape);
    const wanted = isSameKind ? { ...shape, of: shape.of } : shape;
    throw mistake(node.at, path, `must be ${described(wanted)}, not ${shown(node)}`);
  }
  if (chosen.kind === "list" && node.kind === "list") {
    for (const [at, item] of node.items.entries()) check(item, chosen.of, under(path, at));
  } else if (chosen.kind === "object" && node.kind === "mapping") {
    checkObject(node, chosen, path);
  } else if (chosen.kind === "map" && node.kind === "mapping") {
    for (const [key, { at, value }] of node.entries) {
      if (chosen.names !== undefined && key.startsWith("x-")) continue;
      if (chosen.names?.test(key) === false) {
        throw mistake(at, under(path, key), "has an invalid name: expected letters, digits, '.', '_' and '-'");
      }
      check(value, chosen.of, under(path, key));
    }
  }
}
