/**
 * Values of Docker's API types. A field with `omitempty` is an `EmptyField` here when it is empty, or `undefined` where Go has
 * a pointer: templates know it, the JSON omits it. A label map is a `Map`, so that templates can look up any key.
 */
import { EmptyField } from "../template/template.ts";
import type { Driver, Duration, Meta, Timestamp } from "../../proto/gen/messages.ts";

export type DockerObject = Readonly<Record<string, unknown>>;

/** An empty field for the zero value of its type. */
export function unlessEmpty<Value extends string | number | boolean>(value: Value): Value | EmptyField {
  return value === "" || value === 0 || value === false ? new EmptyField(value) : value;
}

export function unlessNone<Item>(items: readonly Item[]): readonly Item[] | EmptyField {
  return items.length === 0 ? new EmptyField([]) : items;
}

export function mapOf(of: Readonly<Record<string, string>> | undefined): ReadonlyMap<string, string> {
  return new Map(Object.entries(of ?? {}));
}

export function mapUnlessEmpty(of: Readonly<Record<string, string>>): ReadonlyMap<string, string> | EmptyField {
  return Object.keys(of).length === 0 ? new EmptyField(new Map()) : mapOf(of);
}

/** Undefined for null. */
export function ifThere<Value, Result>(
  value: Value | null | undefined,
  convert: (value: Value) => Result,
): Result | undefined {
  return value === null || value === undefined ? undefined : convert(value);
}

/** Go's zero time. */
const never = "0001-01-01T00:00:00Z";

/** Texts of whole seconds: objects of a list were often changed in the same ones. */
const secondTexts = new Map<number, string>();
const secondTextsMax = 1_000;

function secondText(seconds: number): string {
  let text = secondTexts.get(seconds);
  if (text !== undefined) return text;
  text = new Date(seconds * 1_000).toISOString().slice(0, "2026-01-01T00:00:00".length);
  if (secondTexts.size >= secondTextsMax) secondTexts.clear();
  secondTexts.set(seconds, text);
  return text;
}

/** RFC 3339 without trailing zeros in the fraction. */
export function timeText(time: Timestamp | null): string {
  if (time === null) return never;
  const whole = secondText(time.seconds);
  const fraction = String(time.nanos).padStart(9, "0").replace(/0+$/, "");
  return `${whole}${fraction === "" ? "" : `.${fraction}`}Z`;
}

/** Nanoseconds. */
export function nanosOf(duration: Duration): number {
  return duration.seconds * 1e9 + duration.nanos;
}

type EnumNames = Readonly<Record<string, number>>;

/** The names of each enum by value: every object has several. */
const wordsByValue = new WeakMap<EnumNames, ReadonlyMap<number, string>>();

function wordsOf(names: EnumNames): ReadonlyMap<number, string> {
  const known = wordsByValue.get(names);
  if (known !== undefined) return known;
  const words = new Map<number, string>();
  for (const [name, value] of Object.entries(names)) if (!words.has(value)) words.set(value, name.toLowerCase());
  wordsByValue.set(names, words);
  return words;
}

/** Docker's name of an enum value: `ON_FAILURE` → `on-failure`. */
export function enumWord(names: EnumNames, value: number, separator: "-" | "_" = "-"): string {
  const word = wordsOf(names).get(value) ?? String(value);
  return separator === "-" ? word.replaceAll("_", "-") : word;
}

/** The first fields of every object. */
export function head({ id, meta }: { readonly id: string; readonly meta: Meta | null }): DockerObject {
  return {
    ID: id,
    Version: { Index: unlessEmpty(meta?.version?.index ?? 0) },
    CreatedAt: timeText(meta?.createdAt ?? null),
    UpdatedAt: timeText(meta?.updatedAt ?? null),
  };
}

export function driverObject({ name, options }: Driver): DockerObject {
  return { Name: unlessEmpty(name), Options: mapUnlessEmpty(options) };
}

export function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("base64");
}
