/** The functions of literals (reference §3.3). They throw ConversionError for invalid arguments. */
import { compareDecimals, decimal, decimalText, parseDecimal, truncate, type Decimal } from "./decimal.ts";
import { ConversionError, boolValue, convert, nullValue, numberValue, textValue, type Value } from "./value.ts";

type HclFunction = (args: readonly Value[]) => Value;

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

/** User-perceived characters. */
function characters(of: string): string[] {
  return Array.from(new Intl.Segmenter().segment(of), ({ segment }) => segment);
}

/** A number's source text, since a double holds only 15 of its digits. */
class WrittenNumber {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** Throws SyntaxError. */
function parseJson(json: string): unknown {
  // TypeScript's library does not declare the third argument yet.
  const keep = (_key: string, value: unknown, context?: { readonly source?: string }): unknown =>
    typeof value === "number" ? new WrittenNumber(context?.source ?? String(value)) : value;
  return JSON.parse(json, keep);
}

function fromJson(json: unknown): Value {
  if (json === null || json === undefined) return nullValue;
  if (typeof json === "boolean") return boolValue(json);
  if (typeof json === "string") return textValue(json);
  if (json instanceof WrittenNumber) {
    const number = parseDecimal(json.text);
    if (number === null) throw new ConversionError(`jsondecode: the number ${json.text.slice(0, 40)} is too large`);
    return numberValue(number);
  }
  if (Array.isArray(json)) return { kind: "tuple", items: json.map(fromJson) };
  return {
    kind: "object",
    entries: new Map(Object.entries(json as object).map(([key, item]) => [key.normalize("NFC"), fromJson(item)])),
  };
}

/** Quotes text as Go does, so that it is safe in HTML and scripts. */
function quoted(of: string): string {
  return JSON.stringify(of).replaceAll(
    /[<>&\u2028\u2029]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
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
      return quoted(value.text);
    case "list":
    case "set":
    case "tuple":
      return `[${value.items.map(toJson).join(",")}]`;
    case "map":
    case "object":
      return `{${[...value.entries]
        .toSorted(([left], [right]) => Buffer.compare(Buffer.from(left, "utf8"), Buffer.from(right, "utf8")))
        .map(([key, item]) => `${quoted(key)}:${toJson(item)}`)
        .join(",")}}`;
  }
}

/** Small Greek letters with an iota subscript have a one-character capital, which is otherwise used only in titles. */
const iotaBelow = /^[\u1F80-\u1F87\u1F90-\u1F97\u1FA0-\u1FA7]$/;
const oddCapitals: Readonly<Record<string, string>> = { "\u1FB3": "\u1FBC", "\u1FC3": "\u1FCC", "\u1FF3": "\u1FFC" };

/** Character by character, as Go does: a character without a one-character capital, such as `ß`, stays unchanged. */
function upper(of: string): string {
  return Array.from(of, (char) => {
    const full = char.toUpperCase();
    if (full.length === char.length) return full;
    if (iotaBelow.test(char)) return String.fromCharCode(char.charCodeAt(0) + 8);
    return oddCapitals[char] ?? (Array.from(full).length === 1 ? full : char);
  }).join("");
}

/** Likewise; a final sigma is treated like any other. */
function lower(of: string): string {
  return Array.from(of, (char) => (char === "\u0130" ? "i" : char.toLowerCase())).join("");
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
      if (collection?.kind === "map") return boolValue(key?.kind === "string" && collection.entries.has(key.text));
      const { length } = items(collection ?? nullValue);
      if (key?.kind !== "number") return boolValue(false);
      const { digits, scale } = key.number;
      return boolValue(scale === 0 && digits >= 0n && digits < BigInt(length));
    },
  ],
  ["int", (args) => numberValue(truncate(number(one(args))))],
  [
    "jsondecode",
    (args) => {
      try {
        return fromJson(parseJson(text(one(args))));
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
      return numberValue(decimal(BigInt(of.kind === "map" ? of.entries.size : items(of).length)));
    },
  ],
  ["lower", (args) => textValue(lower(text(one(args))))],
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
  ["upper", (args) => textValue(upper(text(one(args))))],
]);
