/** The `filters` of a list: which names a list knows, and their values. */
import { badRequest, Failure } from "./failure.ts";
import { parseJson } from "./go-json.ts";

export class Filters {
  readonly #values: ReadonlyMap<string, readonly string[]>;
  readonly #isNew: boolean;

  /** `isNew`: whether errors have the words of engines since 23.0. */
  constructor(values: ReadonlyMap<string, readonly string[]>, isNew: boolean) {
    this.#values = values;
    this.#isNew = isNew;
  }

  get isEmpty(): boolean {
    return this.#values.size === 0;
  }

  get names(): Iterable<string> {
    return this.#values.keys();
  }

  /** Empty if the filter is not set. */
  of(name: string): readonly string[] {
    return this.#values.get(name) ?? [];
  }

  /** `a=b` and `a` as a map, where `a` alone has an empty value. */
  pairs(name: string): Readonly<Record<string, string>> {
    return Object.fromEntries(this.of(name).map((pair) => cut(pair)));
  }

  /** True if the filter is not set or has the value. */
  allows(name: string, value: string): boolean {
    return this.of(name).length === 0 || this.of(name).includes(value);
  }

  /** True if the filter is not set, or a value is a part of `text`; values are regular expressions, as in a stock engine. */
  matches(name: string, text: string): boolean {
    const wanted = this.of(name);
    return wanted.length === 0 || wanted.some((value) => value === text || isMatch(value, text));
  }

  /** True if the filter is not set, or `text` begins with a value. */
  matchesStart(name: string, text: string): boolean {
    const wanted = this.of(name);
    return wanted.length === 0 || wanted.some((value) => text.startsWith(value));
  }

  /** Null if the filter is not set. `numbersBefore23`: whether engines before 23.0 read 1 and 0, too. Throws Failure. */
  flag(name: string, numbersBefore23: boolean): boolean | null {
    if (!this.#values.has(name)) return null;
    const wanted = this.of(name);
    const has = (...words: readonly string[]): boolean => words.some((word) => wanted.includes(word));
    if (this.#isNew) {
      const [isTrue, isFalse] = [has("1", "true"), has("0", "false")];
      if (isTrue !== isFalse) return isTrue;
    } else {
      if (wanted.length === 0 || has("true") || (numbersBefore23 && has("1"))) return true;
      if (has("false") || (numbersBefore23 && has("0"))) return false;
    }
    throw this.invalid(name, wanted.length === 0 ? null : `[${wanted.join(" ")}]`);
  }

  /** The refusal of a filter, or of its value, in the words of the version. */
  invalid(name: string, value: string | null = null): Failure {
    return badRequest(`${this.#isNew ? "invalid" : "Invalid"} filter '${name}${value === null ? "" : `=${value}`}'`);
  }

  /** Every wanted label must be there, with the value if one is given. */
  matchesLabels(name: string, labels: Readonly<Record<string, string>>): boolean {
    return this.of(name).every((pair) => {
      const [key, value] = cut(pair);
      return Object.hasOwn(labels, key) && (!pair.includes("=") || labels[key] === value);
    });
  }

  /** Throws Failure for a filter that the list does not know. */
  accept(known: readonly string[]): this {
    const unknown = [...this.#values.keys()].toSorted().find((name) => !known.includes(name));
    if (unknown !== undefined) throw this.invalid(unknown);
    return this;
  }
}

/** Longer patterns are compared as plain text: a client's expression must not hold up the manager. */
const patternCharsMax = 256;

function isMatch(pattern: string, text: string): boolean {
  // A repetition of a repetition can take exponential time.
  if (pattern.length > patternCharsMax || /[*+}?]\)*[*+{]/.test(pattern)) return text.includes(pattern);
  try {
    return new RegExp(pattern).test(text);
  } catch {
    return false;
  }
}

function cut(pair: string): [string, string] {
  const at = pair.indexOf("=");
  return at < 0 ? [pair, ""] : [pair.slice(0, at), pair.slice(at + 1)];
}

function kindOf(value: unknown): string {
  if (Array.isArray(value)) return "array";
  return typeof value === "boolean" ? "bool" : typeof value;
}

/** Errors have the words of engines before 23.0. */
interface OldWords {
  /** For a text that cannot be read. */
  readonly status: number;
}

/**
 * Both formats of clients: `{"name":{"value":true}}`, and before 1.22 `{"name":["value"]}`. Throws Failure; `old` is null for the
 * words of engines since 23.0, which name no reason.
 */
export function parseFilters(text: string | null, old: OldWords | null = null): Filters {
  const values = new Map<string, readonly string[]>();
  const filters = new Filters(values, old === null);
  if (text === null || text === "") return filters;
  const unread = (reason: string): Failure =>
    old === null ? badRequest("invalid filter") : new Failure(old.status, reason);
  let given: unknown;
  try {
    given = parseJson(text, "unexpected end of JSON input");
  } catch (error) {
    throw error instanceof Failure ? unread(error.message) : error;
  }
  const wrong = (value: unknown, goType: string): Failure =>
    unread(`json: cannot unmarshal ${kindOf(value)} into Go value of type ${goType}`);
  if (given === null) return filters;
  if (typeof given !== "object" || Array.isArray(given)) throw wrong(given, "map[string]map[string]bool");
  for (const [name, held] of Object.entries(given)) {
    if (Array.isArray(held)) {
      const odd: unknown = held.find((each) => typeof each !== "string");
      if (odd !== undefined) throw wrong(held, "map[string]bool");
      values.set(name, held as readonly string[]);
    } else if (typeof held === "object" && held !== null) {
      const odd: unknown = Object.values(held).find((each) => typeof each !== "boolean");
      if (odd !== undefined) throw wrong(odd, "bool");
      values.set(name, Object.keys(held));
    } else throw wrong(held, "map[string]bool");
  }
  return filters;
}
