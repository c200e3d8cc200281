/**
 * Selectors: how policies and rules choose endpoints and services by their labels.
 *
 *     service == 'web' && (tier in {'front', 'edge'} || has(public)) && !(zone starts with 'test')
 *
 * `==`, `!=`, `in`, `not in`, `contains`, `starts with`, `ends with`, `has()`, `all()`, `!`, `&&`, `||` and parentheses; an
 * empty selector matches everything. `!=` and `not in` also hold if the label is missing.
 *
 * S1: the canonical text of a selector parses to an equal one with the same canonical text.
 * S2: a selector has at most `selectorLengthMax` characters and `depthMax` levels, so no text can exhaust the stack.
 */
import { shortDigest } from "./digest.ts";

export type Selector =
  | { readonly kind: "all" }
  | { readonly kind: "has"; readonly key: string }
  | { readonly kind: "in"; readonly key: string; readonly values: readonly string[] }
  | {
      readonly kind: "contains" | "starts" | "ends";
      readonly key: string;
      readonly value: string;
    }
  | { readonly kind: "not"; readonly of: Selector }
  | { readonly kind: "and" | "or"; readonly of: readonly Selector[] };

export type Labels = Readonly<Record<string, string>>;

type SelectorOutcome =
  | { readonly kind: "parsed"; readonly selector: Selector }
  /** `at`: position of the character, from 1; `problem` continues "selector …". */
  | { readonly kind: "invalid"; readonly at: number; readonly problem: string };

/** Longer than anything that a person writes; bounds the cost of parsing. */
const selectorLengthMax = 4_096;
const depthMax = 50;

class Mistake extends Error {
  readonly at: number;
  constructor(at: number, problem: string) {
    super(problem);
    this.at = at;
  }
}

const keyPattern = /[A-Za-z0-9_./-]+/y;
const keywords: Readonly<Record<string, "contains" | "starts" | "ends">> = {
  contains: "contains",
  starts: "starts",
  ends: "ends",
};

class Parser {
  readonly #text: string;
  #at = 0;
  #depth = 0;

  constructor(text: string) {
    this.#text = text;
  }

  whole(): Selector {
    this.#space();
    if (this.#at === this.#text.length) return { kind: "all" };
    const selector = this.#either();
    if (this.#at < this.#text.length) this.#fail(`is invalid: unexpected ${this.#rest()}`);
    return selector;
  }

  #either(): Selector {
    const parts = [this.#both()];
    while (this.#take("||")) parts.push(this.#both());
    return joined("or", parts);
  }

  #both(): Selector {
    const parts = [this.#single()];
    while (this.#take("&&")) parts.push(this.#single());
    return joined("and", parts);
  }

  /** S2 */
  #single(): Selector {
    this.#depth += 1;
    if (this.#depth > depthMax) this.#fail(`is more than ${depthMax} levels deep`);
    const selector = this.#operand();
    this.#depth -= 1;
    return selector;
  }

  #operand(): Selector {
    if (this.#take("!")) return negated(this.#single());
    if (this.#take("(")) {
      const inner = this.#either();
      this.#demand(")");
      return inner;
    }
    const start = this.#at;
    const word = this.#word();
    if (word === "") this.#expected("a label");
    if (this.#take("(")) {
      if (word !== "has" && word !== "all") {
        this.#at = start;
        this.#fail(`is invalid: unknown function '${word}', expected has(LABEL) or all()`);
      }
      const key = word === "has" ? this.#word() : "";
      if (word === "has" && key === "") this.#expected("a label in has()");
      this.#demand(")");
      return word === "has" ? { kind: "has", key } : { kind: "all" };
    }
    return this.#comparison(word);
  }

  #comparison(key: string): Selector {
    if (this.#take("==")) return { kind: "in", key, values: [this.#value()] };
    if (this.#take("!=")) return negated({ kind: "in", key, values: [this.#value()] });
    const start = this.#at;
    const word = this.#word();
    if (word === "in") return { kind: "in", key, values: this.#values() };
    if (word === "not") {
      if (this.#word() !== "in") this.#expected("'in' after 'not'");
      return negated({ kind: "in", key, values: this.#values() });
    }
    const kind = Object.hasOwn(keywords, word) ? keywords[word] : undefined;
    if (kind === undefined) {
      this.#at = start;
      this.#expected(`==, !=, in, not in, contains, 'starts with' or 'ends with' after '${key}'`);
    }
    if (kind !== "contains" && this.#word() !== "with") this.#expected(`'with' after '${word}'`);
    return { kind, key, value: this.#value() };
  }

  #values(): string[] {
    this.#demand("{");
    const values: string[] = [];
    if (this.#take("}")) return values;
    do values.push(this.#value());
    while (this.#take(","));
    this.#demand("}");
    return [...new Set(values)].toSorted();
  }

  #value(): string {
    const quote = this.#text[this.#at];
    if (quote !== "'" && quote !== '"') this.#expected("a value in quotes");
    const end = this.#text.indexOf(quote as string, this.#at + 1);
    if (end < 0) this.#fail("is invalid: missing closing quote");
    const value = this.#text.slice(this.#at + 1, end);
    this.#at = end + 1;
    this.#space();
    return value;
  }

  #word(): string {
    keyPattern.lastIndex = this.#at;
    const word = keyPattern.exec(this.#text)?.[0] ?? "";
    this.#at += word.length;
    this.#space();
    return word;
  }

  #take(symbol: string): boolean {
    if (!this.#text.startsWith(symbol, this.#at)) return false;
    // Part of `!=`.
    if (symbol === "!" && this.#text[this.#at + 1] === "=") return false;
    this.#at += symbol.length;
    this.#space();
    return true;
  }

  #demand(symbol: string): void {
    if (!this.#take(symbol)) this.#expected(`'${symbol}'`);
  }

  #space(): void {
    while (/\s/.test(this.#text[this.#at] ?? "")) this.#at += 1;
  }

  #rest(): string {
    return JSON.stringify(this.#text.slice(this.#at, this.#at + 20));
  }

  #expected(what: string): never {
    const found = this.#at < this.#text.length ? `, found ${this.#rest()}` : "";
    this.#fail(`is invalid: expected ${what}${found}`);
  }

  #fail(problem: string): never {
    throw new Mistake(this.#at + 1, problem);
  }
}

/** Canonical form: flattens nested ones of the same kind, removes duplicates and sorts the parts. */
function joined(kind: "and" | "or", parts: readonly Selector[]): Selector {
  const flat = parts.flatMap((part) => (part.kind === kind ? part.of : [part]));
  const byText = new Map(flat.map((part) => [selectorText(part), part]));
  const of = [...byText.keys()].toSorted().map((text) => byText.get(text) as Selector);
  if (kind === "and") {
    const narrowing = of.filter((part) => part.kind !== "all");
    if (narrowing.length === 0) return { kind: "all" };
    return narrowing.length === 1 ? (narrowing[0] as Selector) : { kind, of: narrowing };
  }
  if (of.some((part) => part.kind === "all")) return { kind: "all" };
  return of.length === 1 ? (of[0] as Selector) : { kind, of };
}

function negated(of: Selector): Selector {
  return of.kind === "not" ? of.of : { kind: "not", of };
}

export function parseSelector(text: string): SelectorOutcome {
  if (text.length > selectorLengthMax)
    return { kind: "invalid", at: 1, problem: `is longer than ${selectorLengthMax} characters` };
  try {
    return { kind: "parsed", selector: new Parser(text).whole() };
  } catch (error) {
    if (error instanceof Mistake) return { kind: "invalid", at: error.at, problem: error.message };
    throw error;
  }
}

function quoted(value: string): string {
  return value.includes("'") ? `"${value}"` : `'${value}'`;
}

/** S1 */
export function selectorText(selector: Selector): string {
  switch (selector.kind) {
    case "all":
      return "all()";
    case "has":
      return `has(${selector.key})`;
    case "in":
      return selector.values.length === 1
        ? `${selector.key} == ${quoted(selector.values[0] as string)}`
        : `${selector.key} in {${selector.values.map(quoted).join(", ")}}`;
    case "contains":
      return `${selector.key} contains ${quoted(selector.value)}`;
    case "starts":
    case "ends":
      return `${selector.key} ${selector.kind} with ${quoted(selector.value)}`;
    case "not":
      return selector.of.kind === "in" || selector.of.kind === "has" || selector.of.kind === "all"
        ? negatedText(selector.of)
        : `!(${selectorText(selector.of)})`;
    case "and":
    case "or":
      return selector.of
        .map((part) => (part.kind === "and" || part.kind === "or" ? `(${selectorText(part)})` : selectorText(part)))
        .join(selector.kind === "and" ? " && " : " || ");
  }
}

function negatedText(of: Extract<Selector, { kind: "in" | "has" | "all" }>): string {
  if (of.kind !== "in") return `!${selectorText(of)}`;
  return of.values.length === 1
    ? `${of.key} != ${quoted(of.values[0] as string)}`
    : `${of.key} not in {${of.values.map(quoted).join(", ")}}`;
}

export function matchesSelector(selector: Selector, labels: Labels): boolean {
  switch (selector.kind) {
    case "all":
      return true;
    case "has":
      return Object.hasOwn(labels, selector.key);
    case "in":
      return Object.hasOwn(labels, selector.key) && selector.values.includes(labels[selector.key] as string);
    case "contains":
      return Object.hasOwn(labels, selector.key) && (labels[selector.key] as string).includes(selector.value);
    case "starts":
      return Object.hasOwn(labels, selector.key) && (labels[selector.key] as string).startsWith(selector.value);
    case "ends":
      return Object.hasOwn(labels, selector.key) && (labels[selector.key] as string).endsWith(selector.value);
    case "not":
      return !matchesSelector(selector.of, labels);
    case "and":
      return selector.of.every((part) => matchesSelector(part, labels));
    case "or":
      return selector.of.some((part) => matchesSelector(part, labels));
  }
}

/** `PREFIX` and a digest of the canonical text: equal selectors have equal ids. At most 31 characters with a short prefix. */
export function selectorId(prefix: string, selector: Selector, ...more: readonly string[]): string {
  return `${prefix}${shortDigest([selectorText(selector), ...more].join("\n"))}`;
}
