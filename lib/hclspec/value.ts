/**
 * HCL's values and types, as far as configurations use them (docs/reference/nomad-driver-protocol.md §3.2, §3.4), and the
 * conversions between them.
 */
import { compareDecimals, decimalText, parseDecimal, type Decimal } from "./decimal.ts";

export type Type =
  | { readonly kind: "string" | "number" | "bool" | "any" }
  | { readonly kind: "list" | "set" | "map"; readonly of: Type }
  | { readonly kind: "object"; readonly fields: ReadonlyMap<string, Type> }
  | { readonly kind: "tuple"; readonly items: readonly Type[] };

export type Value =
  | { readonly kind: "null" }
  | { readonly kind: "string"; readonly text: string }
  | { readonly kind: "number"; readonly number: Decimal }
  | { readonly kind: "bool"; readonly is: boolean }
  | { readonly kind: "list" | "set" | "tuple"; readonly items: readonly Value[] }
  | { readonly kind: "map" | "object"; readonly entries: ReadonlyMap<string, Value> };

export const nullValue: Value = { kind: "null" };
export const textValue = (text: string): Value => ({ kind: "string", text: text.normalize("NFC") });
export const boolValue = (is: boolean): Value => ({ kind: "bool", is });
export const numberValue = (number: Decimal): Value => ({ kind: "number", number });

/** A value that cannot be converted to the required type. The path leads from the value to the part that cannot. */
export class ConversionError extends Error {
  override readonly name = "ConversionError";
  readonly path: readonly string[];
  constructor(message: string, path: readonly string[] = []) {
    super(message);
    this.path = path;
  }
}

/** A type's name in messages. */
function typeText(type: Type): string {
  switch (type.kind) {
    case "list":
    case "set":
    case "map":
      return `${type.kind} of ${typeText(type.of)}`;
    default:
      return type.kind;
  }
}

function within<Result>(step: string, run: () => Result): Result {
  try {
    return run();
  } catch (error) {
    if (error instanceof ConversionError) throw new ConversionError(error.message, [step, ...error.path]);
    throw error;
  }
}

/** Converts the value to the type. Throws ConversionError. */
export function convert(value: Value, type: Type): Value {
  if (value.kind === "null") return value;
  switch (type.kind) {
    case "any":
      return value;
    case "string":
      if (value.kind === "string") return value;
      if (value.kind === "number") return textValue(decimalText(value.number));
      if (value.kind === "bool") return textValue(String(value.is));
      break;
    case "number": {
      if (value.kind === "number") return value;
      const number = value.kind === "string" ? parseDecimal(value.text) : null;
      if (number !== null) return numberValue(number);
      break;
    }
    case "bool":
      if (value.kind === "bool") return value;
      if (value.kind === "string" && ["true", "1"].includes(value.text)) return boolValue(true);
      if (value.kind === "string" && ["false", "0"].includes(value.text)) return boolValue(false);
      break;
    case "list":
    case "set":
      if (!("items" in value)) break;
      return sequence(type.kind, convertAll(value.items, type.of));
    case "map": {
      if (!("entries" in value)) break;
      const values = convertAll([...value.entries.values()], type.of, [...value.entries.keys()]);
      return { kind: "map", entries: new Map([...value.entries.keys()].map((key, at) => [key, values[at] as Value])) };
    }
    case "object": {
      if (!("entries" in value)) break;
      const entries = new Map<string, Value>();
      for (const [key, of] of type.fields) {
        const given = value.entries.get(key);
        if (given === undefined) throw new ConversionError(`attribute "${key}" is required`, [key]);
        entries.set(
          key,
          within(key, () => convert(given, of)),
        );
      }
      return { kind: "object", entries };
    }
    case "tuple": {
      if (!("items" in value)) break;
      if (value.items.length !== type.items.length)
        throw new ConversionError(`a tuple of ${type.items.length} is required, not of ${value.items.length}`);
      const items = value.items.map((item, at) => within(String(at), () => convert(item, type.items[at] as Type)));
      return { kind: "tuple", items };
    }
  }
  throw new ConversionError(`a ${typeText(type)} is required, not ${described(value)}`);
}

function described(value: Value): string {
  switch (value.kind) {
    case "string":
      return `the string ${JSON.stringify(value.text.slice(0, 40))}`;
    case "number":
      return `the number ${decimalText(value.number)}`;
    case "bool":
      return `the bool ${value.is}`;
    default:
      return `a ${value.kind}`;
  }
}

/** Converts all elements to one type; for `any`, to a type that all of them convert to. */
export function convertAll(items: readonly Value[], type: Type, names?: readonly string[]): readonly Value[] {
  const converted = items.map((item, at) => within(names?.[at] ?? String(at), () => convert(item, type)));
  return type.kind === "any" ? unify(converted) : converted;
}

/** Sets have neither order nor duplicates; they are stored in the order in which they are encoded. */
export function sequence(kind: "list" | "set" | "tuple", items: readonly Value[]): Value {
  if (kind !== "set") return { kind, items };
  const sorted = [...items].toSorted(compareValues);
  return { kind, items: sorted.filter((item, at) => at === 0 || compareValues(item, sorted[at - 1] as Value) !== 0) };
}

/** Go sorts by bytes; JavaScript's default is UTF-16. */
export function compareTexts(left: string, right: string): number {
  return Buffer.compare(Buffer.from(left, "utf8"), Buffer.from(right, "utf8"));
}

/**
 * The order in which a set's elements are encoded: false before true, numbers by size, strings by their bytes, nulls last.
 * Other
 * types have no order of their own, and use that of the text under which HCL's sets store them.
 */
export function compareValues(left: Value, right: Value): number {
  if (left.kind === "bool" && right.kind === "bool") return Number(left.is) - Number(right.is);
  if (left.kind === "number" && right.kind === "number") return compareDecimals(left.number, right.number);
  if (left.kind === "string" && right.kind === "string") return compareTexts(left.text, right.text);
  if (left.kind === "null" || right.kind === "null")
    return Number(left.kind === "null") - Number(right.kind === "null");
  return compareTexts(setKey(left), setKey(right));
}

function setKey(value: Value): string {
  switch (value.kind) {
    case "null":
      return "~";
    case "bool":
      return value.is ? "T" : "F";
    case "number":
      return shortNumber(value.number);
    case "string":
      return JSON.stringify(value.text);
    case "list":
    case "set":
    case "tuple":
      return `[${value.items.map((item) => `${setKey(item)};`).join("")}]`;
    case "map":
    case "object": {
      const entries = [...value.entries].toSorted(([one], [other]) => compareTexts(one, other));
      const parts = entries.map(([key, item]) =>
        value.kind === "map" ? `${JSON.stringify(key)}:${setKey(item)};` : `${setKey(item)};`,
      );
      return value.kind === "map" ? `{${parts.join("")}}` : `<${parts.join("")}>`;
    }
  }
}

/** Ten digits, as Go's `%.10g` prints them. */
function shortNumber(number: Decimal): string {
  const [mantissa = "0", power = "0"] = Number(decimalText(number)).toExponential(9).split("e");
  const digits = mantissa.replace(".", "").replace("-", "").replace(/0+$/, "").length;
  const exponent = Number(power);
  const exponentMax = digits < 10 && digits > exponent ? digits : 10;
  if (exponent >= -4 && exponent < exponentMax) return String(Number(`${mantissa}e${power}`));
  const short = mantissa.replace(/\.?0+$/, "");
  return `${short}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
}

/** The narrowest type of a value. */
function typeOf(value: Value): Type {
  switch (value.kind) {
    case "null":
      return { kind: "any" };
    case "string":
    case "number":
    case "bool":
      return { kind: value.kind };
    case "list":
    case "set":
      return { kind: value.kind, of: common(value.items.map(typeOf)) ?? { kind: "any" } };
    case "tuple":
      return { kind: "tuple", items: value.items.map(typeOf) };
    case "map":
      return { kind: "map", of: common([...value.entries.values()].map(typeOf)) ?? { kind: "any" } };
    case "object":
      return { kind: "object", fields: new Map([...value.entries].map(([key, item]) => [key, typeOf(item)])) };
  }
}

/** The type that all convert to; null if there is none. Nulls convert to any type. */
function common(all: readonly Type[]): Type | null {
  const types = all.filter((type) => type.kind !== "any");
  const first = types[0];
  if (first === undefined) return { kind: "any" };
  if (types.every((type) => isPrimitive(type))) {
    if (types.every((type) => type.kind === first.kind)) return first;
    return types.some((type) => type.kind === "string") ? { kind: "string" } : null;
  }
  if (types.every((type) => type.kind === "object" || type.kind === "map")) {
    const fields = types.map((type) => (type.kind === "object" ? type.fields : null));
    const keys = fields[0] === null || fields[0] === undefined ? null : [...fields[0].keys()].toSorted();
    const isSame =
      keys !== null && fields.every((one) => one !== null && String([...one.keys()].toSorted()) === String(keys));
    if (isSame) {
      const entries = keys.map((key) => [key, common(fields.map((one) => one?.get(key) as Type))] as const);
      if (entries.every(([, type]) => type !== null))
        return { kind: "object", fields: new Map(entries as [string, Type][]) };
      return null;
    }
    const of = common(
      types.flatMap((type) => (type.kind === "object" ? [...type.fields.values()] : [(type as { of: Type }).of])),
    );
    return of === null ? null : { kind: "map", of };
  }
  if (types.every((type) => type.kind === "tuple" || type.kind === "list" || type.kind === "set")) {
    const tuples = types.map((type) => (type.kind === "tuple" ? type.items : null));
    const length = tuples[0]?.length;
    if (tuples.every((items) => items !== null && items.length === length)) {
      const items = (tuples[0] ?? []).map((_, at) => common(tuples.map((one) => one?.[at] as Type)));
      if (items.every((type) => type !== null)) return { kind: "tuple", items };
    }
    const of = common(types.flatMap((type) => (type.kind === "tuple" ? type.items : [(type as { of: Type }).of])));
    return of === null ? null : { kind: "list", of };
  }
  return null;
}

function isPrimitive({ kind }: Type): boolean {
  return kind === "string" || kind === "number" || kind === "bool";
}

/** Converts values to one type, as elements of a list. Throws ConversionError if they have none in common. */
export function unify(values: readonly Value[]): readonly Value[] {
  const type = common(values.map(typeOf));
  if (type === null) throw new ConversionError("all elements must be of one type");
  return type.kind === "any" ? values : values.map((value) => convert(value, type));
}
