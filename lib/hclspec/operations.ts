/** Evaluates operators, conditionals, loops and accesses of expressions. All throw ExpressionError. */
import { fail } from "./cursor.ts";
import { calculate, compareDecimals, decimal, decimalText, type Operator } from "./decimal.ts";
import {
  ConversionError,
  boolValue,
  compareValues,
  convert,
  numberValue,
  textValue,
  unify,
  type Value,
} from "./value.ts";

/** Variables by name. */
export type Scope = ReadonlyMap<string, Value>;
/** A compiled part of an expression; can be evaluated any number of times. */
export type Node = (scope: Scope) => Value;

/**
 * Elements that all loops of one expression may visit together. Nested loops multiply: a few hundred characters could otherwise
 * keep an agent busy for years.
 */
const visitsMax = 100_000;

export class Visits {
  #left = visitsMax;

  count(): void {
    this.#left -= 1;
    if (this.#left < 0) fail(`the 'for' expressions visit more than ${visitsMax} elements`);
  }
}

/** Runs a conversion and turns its failure into an ExpressionError. */
export function converting(run: () => Value): Value {
  try {
    return run();
  } catch (error) {
    if (error instanceof ConversionError) fail(error.message);
    throw error;
  }
}

export function truth(value: Value): boolean {
  const converted = converting(() => convert(value, { kind: "bool" }));
  return converted.kind === "bool" ? converted.is : fail("a condition is null");
}

export function asText(value: Value): string {
  const converted = converting(() => convert(value, { kind: "string" }));
  return converted.kind === "string" ? converted.text : fail("null cannot be part of a string");
}

export function arithmetic(operator: Operator, left: Value, right: Value): Value {
  const [a, b] = [left, right].map((value) => converting(() => convert(value, { kind: "number" })));
  if (a?.kind !== "number" || b?.kind !== "number") return fail(`cannot apply ${operator} to null`);
  const result = calculate(operator, a.number, b.number);
  return result === null ? fail("division by zero") : numberValue(result);
}

export function ordered(operator: "<" | "<=" | ">" | ">=", left: Value, right: Value): Value {
  const [a, b] = [left, right].map((value) => converting(() => convert(value, { kind: "number" })));
  if (a?.kind !== "number" || b?.kind !== "number") return fail(`cannot apply ${operator} to null`);
  const order = compareDecimals(a.number, b.number);
  return boolValue({ "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0 }[operator]);
}

export function isEqual(left: Value, right: Value): boolean {
  return compareValues(left, right) === 0;
}

/** Errors of the branch that is not chosen are ignored; the result has the type that both branches convert to. */
export function chosen(condition: Node, yes: Node, no: Node): Node {
  return (scope) => {
    const is = truth(condition(scope));
    const value = (is ? yes : no)(scope);
    let other: Value;
    try {
      other = (is ? no : yes)(scope);
    } catch {
      return value;
    }
    return converting(() => unify([value, other])[0] as Value);
  };
}

export interface Loop {
  readonly keyName: string | null;
  readonly valueName: string;
  readonly collection: Node;
  readonly condition: Node | null;
}

function compareKeys([left]: readonly [string, Value], [right]: readonly [string, Value]): number {
  return Buffer.compare(Buffer.from(left, "utf8"), Buffer.from(right, "utf8"));
}

/** Keys: positions for lists, elements for sets. Maps are visited in the byte order of their keys. */
function elements(value: Value): readonly (readonly [Value, Value])[] {
  if ("entries" in value) return [...value.entries].toSorted(compareKeys).map(([key, item]) => [textValue(key), item]);
  if ("items" in value)
    return value.items.map((item, at) => [value.kind === "set" ? item : numberValue(decimal(BigInt(at))), item]);
  return fail(value.kind === "null" ? "'for' over null" : `'for' over a ${value.kind}`);
}

/** The scopes of a loop's body, one for each element that passes its condition. */
export function* visited(loop: Loop, scope: Scope, visits: Visits): Generator<Scope> {
  for (const [key, value] of elements(loop.collection(scope))) {
    visits.count();
    const inner = new Map(scope);
    if (loop.keyName !== null) inner.set(loop.keyName, key);
    inner.set(loop.valueName, value);
    if (loop.condition === null || truth(loop.condition(inner))) yield inner;
  }
}

export function tupleLoop(loop: Loop, body: Node, visits: Visits): Node {
  return (scope) => ({ kind: "tuple", items: Array.from(visited(loop, scope, visits), (inner) => body(inner)) });
}

/** `isGrouping`: values with the same key form a list instead of an error. */
export function objectLoop(loop: Loop, key: Node, body: Node, isGrouping: boolean, visits: Visits): Node {
  return (scope) => {
    const groups = new Map<string, Value[]>();
    for (const inner of visited(loop, scope, visits)) {
      const name = asText(key(inner));
      const group = groups.get(name);
      if (group === undefined) groups.set(name, [body(inner)]);
      else if (isGrouping) group.push(body(inner));
      else fail(`two elements have the key ${JSON.stringify(name)}: group them with '...' after the value`);
    }
    const entries = Array.from(
      groups,
      ([name, items]) => [name, isGrouping ? { kind: "tuple", items } : (items[0] as Value)] as const,
    );
    return { kind: "object", entries: new Map<string, Value>(entries as [string, Value][]) };
  };
}

/** Applies `each` to every element; a value that is not a list counts as a list of one, null as an empty list. */
export function splat(value: Value, each: (item: Value) => Value, visits: Visits): Value {
  const items = "items" in value ? value.items : value.kind === "null" ? [] : [value];
  return {
    kind: "tuple",
    items: items.map((item) => {
      visits.count();
      return each(item);
    }),
  };
}

/** An attribute of an object, or an element of a list. */
export function step(value: Value, key: Value): Value {
  if ("entries" in value) {
    const name = asText(key);
    return value.entries.get(name) ?? fail(`there is no attribute named "${name}"`);
  }
  if ("items" in value && value.kind !== "set") {
    const index = converting(() => convert(key, { kind: "number" }));
    const at = index.kind === "number" ? Number(decimalText(index.number)) : Number.NaN;
    return value.items[at] ?? fail(`there is no element ${at}`);
  }
  return fail(`a ${value.kind} has no elements`);
}
