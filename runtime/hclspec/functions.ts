/** The functions of literals (reference §3.3). They throw ConversionError for what they do not take. */
import { compareDecimals, decimal, decimalOf, decimalText, truncate, type Decimal } from "./decimal.ts";
import { ConversionError, boolValue, convert, nullValue, numberValue, textValue, type Value } from "./value.ts";

export type HclFunction = (args: readonly Value[]) => Value;

function one(args: readonly Value[]): Value {
  const [only] = args;
  if (only === undefined || args.length > 1) throw new ConversionError("one argument is expected");
  return only;
}

function text(value: Value | undefined): string {
  const converted = value === undefined ? nullValue : convert(value, { kind: "string" });
  if (converted.kind !== "string") throw new ConversionError("a string is required");
  return converted.text;
}

function number(value: Value | undefined): Decimal {
  const converted = value === undefined ? nullValue : convert(value, { kind: "number" });
  if (converted.kind !== "number") throw new ConversionError("a number is required");
  return converted.number;
}

function items(value: Value): readonly Value[] {
  if (!("items" in value)) throw new ConversionError("a list is required");
  return value.items;
}

function extreme(args: readonly Value[], sign: 1 | -1): Value {
  const numbers = args.map(number);
  const [first, ...rest] = numbers;
  if (first === undefined) throw new ConversionError("at least one number is required");
  return numberValue(rest.reduce((best, next) => (compareDecimals(next, best) * sign > 0 ? next : best), first));
}

/** Characters as people count them. */
function characters(of: string): string[] {
  return Array.from(new Intl.Segmenter().segment(of), ({ segment }) => segment);
}

function fromJson(json: unknown): Value {
  if (json === null || json === undefined) return nullValue;
  if (typeof json === "boolean") return boolValue(json);
  if (typeof json === "string") return textValue(json);
  if (typeof json === "number") return numberValue(decimalOf(json) as Decimal);
  if (Array.isArray(json)) return { kind: "tuple", items: json.map(fromJson) };
  return {
    kind: "object",
    entries: new Map(Object.entries(json as object).map(([key, item]) => [key, fromJson(item)])),
  };
}

function toJson(value: Value): string {
  switch (value.kind) {
    case "null":
      return "null";
    case "bool":
      return String(value.is);
    case "number":
      return decimalText(value.number);
    case "string":
      return JSON.stringify(value.text);
    case "list":
    case "set":
    case "tuple":
      return `[${value.items.map(toJson).join(",")}]`;
    case "map":
    case "object":
      return `{${[...value.entries]
        .toSorted(([left], [right]) => (left < right ? -1 : 1))
        .map(([key, item]) => `${JSON.stringify(key)}:${toJson(item)}`)
        .join(",")}}`;
  }
}

export const functions: ReadonlyMap<string, HclFunction> = new Map<string, HclFunction>([
  [
    "abs",
    (args) => {
      const { digits, scale } = number(one(args));
      return numberValue(decimal(digits < 0n ? -digits : digits, scale));
    },
  ],
  [
    "coalesce",
    (args) => {
      const found = args.find(({ kind }) => kind !== "null");
      if (found === undefined) throw new ConversionError("all arguments are null");
      return found;
    },
  ],
  ["concat", (args) => ({ kind: "tuple", items: args.flatMap(items) })],
  [
    "hasindex",
    ([collection, key]) => {
      if (collection !== undefined && "entries" in collection) return boolValue(collection.entries.has(text(key)));
      const at = number(key);
      return boolValue(at.scale === 0 && at.digits >= 0n && at.digits < BigInt(items(collection ?? nullValue).length));
    },
  ],
  ["int", (args) => numberValue(truncate(number(one(args))))],
  [
    "jsondecode",
    (args) => {
      try {
        return fromJson(JSON.parse(text(one(args))));
      } catch (error) {
        throw error instanceof ConversionError ? error : new ConversionError("jsondecode: not JSON");
      }
    },
  ],
  ["jsonencode", (args) => textValue(toJson(one(args)))],
  [
    "length",
    (args) => {
      const of = one(args);
      return numberValue(decimal(BigInt("entries" in of ? of.entries.size : items(of).length)));
    },
  ],
  ["lower", (args) => textValue(text(one(args)).toLowerCase())],
  ["max", (args) => extreme(args, 1)],
  ["min", (args) => extreme(args, -1)],
  [
    "reverse",
    (args) =>
      textValue(
        characters(text(one(args)))
          .toReversed()
          .join(""),
      ),
  ],
  ["strlen", (args) => numberValue(decimal(BigInt(characters(text(one(args))).length)))],
  [
    "substr",
    ([of, offset, length]) => {
      const all = characters(text(of));
      const from = Number(number(offset).digits);
      const start = from < 0 ? Math.max(0, all.length + from) : from;
      const count = Number(number(length).digits);
      return textValue(all.slice(start, count < 0 ? undefined : start + count).join(""));
    },
  ],
  ["upper", (args) => textValue(text(one(args)).toUpperCase())],
]);
