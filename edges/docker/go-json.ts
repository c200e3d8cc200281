/**
 * JSON as Go's decoder reads it from a request: the first value counts and what follows it is ignored. Its errors have Go's
 * words, which clients print.
 */
import { badRequest } from "./failure.ts";

/** Nesting at which Go's decoder gives up. */
const depthMax = 10_000;

/** `ended`: what Go says when a text ends too early, which depends on how it is read. Throws Failure. */
export function parseJson(text: string, ended = "unexpected EOF"): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // Go reads bytes, and prints each as the character with its number.
    const bytes = Buffer.from(text);
    const end = new Scanner(bytes.toString("latin1"), ended).value();
    return JSON.parse(bytes.subarray(0, end).toString()) as unknown;
  }
}

function quoted(char: string): string {
  if (char === "'") return String.raw`'\''`;
  if (char === '"') return `'"'`;
  return `'${JSON.stringify(char).slice(1, -1)}'`;
}

/** Finds the end of the first value, or Go's error: only for texts that are not one JSON value. */
class Scanner {
  readonly #text: string;
  readonly #ended: string;
  #at = 0;
  #depth = 0;

  constructor(text: string, ended: string) {
    this.#text = text;
    this.#ended = ended;
  }

  /** The position after the first value. */
  value(): number {
    this.#space();
    if (this.#at >= this.#text.length) throw badRequest(this.#ended);
    const char = this.#text[this.#at] as string;
    if (char === "{") this.#members("{");
    else if (char === "[") this.#members("[");
    else if (char === '"') this.#string();
    else if (char === "-" || (char >= "0" && char <= "9")) this.#number();
    else if (char === "t") this.#word("true");
    else if (char === "f") this.#word("false");
    else if (char === "n") this.#word("null");
    else this.#fail("looking for beginning of value");
    return this.#at;
  }

  #members(open: "{" | "["): void {
    if (++this.#depth > depthMax) throw badRequest("exceeded max depth");
    const close = open === "{" ? "}" : "]";
    this.#at += 1;
    this.#space();
    if (this.#peek() === close) {
      this.#at += 1;
      this.#depth -= 1;
      return;
    }
    for (;;) {
      this.#space();
      if (open === "{") {
        if (this.#peek() !== '"') this.#fail("looking for beginning of object key string");
        this.#string();
        this.#space();
        if (this.#peek() !== ":") this.#fail("after object key");
        this.#at += 1;
      }
      this.value();
      this.#space();
      const next = this.#peek();
      if (next !== "," && next !== close)
        this.#fail(`after ${open === "{" ? "object key:value pair" : "array element"}`);
      this.#at += 1;
      if (next === close) break;
    }
    this.#depth -= 1;
  }

  #string(): void {
    for (this.#at += 1; ; this.#at += 1) {
      const char = this.#peek();
      if (char === '"') break;
      if (char < " ") this.#fail("in string literal");
      if (char !== "\\") continue;
      this.#at += 1;
      const escaped = this.#peek();
      if (escaped === "u") {
        for (let digit = 0; digit < 4; digit += 1) {
          this.#at += 1;
          if (!/[0-9a-fA-F]/.test(this.#peek())) this.#fail(String.raw`in \u hexadecimal character escape`);
        }
      } else if (!'"\\/bfnrt'.includes(escaped)) this.#fail("in string escape code");
    }
    this.#at += 1;
  }

  #number(): void {
    if (this.#peek() === "-") this.#at += 1;
    if (this.#text[this.#at] === "0") this.#at += 1;
    else this.#digits("in numeric literal");
    if (this.#text[this.#at] === ".") {
      this.#at += 1;
      this.#digits("after decimal point in numeric literal");
    }
    if (/[eE]/.test(this.#text[this.#at] ?? "")) {
      this.#at += 1;
      if (/[+-]/.test(this.#text[this.#at] ?? "")) this.#at += 1;
      this.#digits("in exponent of numeric literal");
    }
  }

  #digits(context: string): void {
    if (!/\d/.test(this.#peek())) this.#fail(context);
    while (/\d/.test(this.#text[this.#at] ?? "")) this.#at += 1;
  }

  #word(word: string): void {
    for (const char of word) {
      if (this.#peek() !== char) this.#fail(`in literal ${word} (expecting ${quoted(char)})`);
      this.#at += 1;
    }
  }

  #space(): void {
    while (" \t\r\n".includes(this.#text[this.#at] ?? "x")) this.#at += 1;
  }

  #peek(): string {
    const char = this.#text[this.#at];
    if (char === undefined) throw badRequest(this.#ended);
    return char;
  }

  #fail(context: string): never {
    throw badRequest(`invalid character ${quoted(this.#peek())} ${context}`);
  }
}
