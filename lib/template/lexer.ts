/**
 * Splits a Go template into tokens. Everything outside of `{{` and `}}` is text; `{{- ` and ` -}}` trim the adjacent white
 * space; `{{/* … *\/}}` is a comment.
 */
import { TemplateError } from "./error.ts";

export type TokenKind =
  | "text"
  | "open"
  | "close"
  /** `.Name` */
  | "field"
  /** `$` or `$name` */
  | "variable"
  /** A function's name or a keyword. */
  | "word"
  | "string"
  | "number"
  /** A lone `.` */
  | "dot"
  | "|"
  | "("
  | ")"
  | ","
  | ":="
  | "="
  /** Significant between operands: `.a.b` is one operand, `.a .b` are two. */
  | "space"
  | "end";

export interface Token {
  readonly kind: TokenKind;
  /** For `text` and `string` the value; for `field` and `variable` the name without its prefix; otherwise as written. */
  readonly text: string;
  /** Its start in the template. */
  readonly at: number;
}

const blank = /[ \t\r\n]/;
/** White space as Go trims it. */
const blanksAtStart = /^[ \t\r\n]+/;

/** Without a regular expression: one that ends with `$` would try every space of a text as a start, which is quadratic. */
function trimmedAtEnd(text: string): string {
  let end = text.length;
  while (end > 0 && blank.test(text[end - 1] as string)) end -= 1;
  return text.slice(0, end);
}

/** Each pattern is tried at the end of the last token. */
const patterns: readonly (readonly [TokenKind, RegExp])[] = [
  ["space", /[ \t\r\n]+/y],
  ["field", /\.[\p{L}_][\p{L}\p{Nd}_]*/uy],
  ["number", /[+-]?(?:0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)/y],
  ["dot", /\./y],
  ["variable", /\$(?:[\p{L}_][\p{L}\p{Nd}_]*)?/uy],
  ["word", /[\p{L}_][\p{L}\p{Nd}_]*/uy],
  [":=", /:=/y],
  ["=", /=/y],
  ["|", /\|/y],
  ["(", /\(/y],
  [")", /\)/y],
  [",", /,/y],
];

/** `bad character U+007D '}'` */
function badCharacter(code: number): string {
  return `bad character U+${code.toString(16).toUpperCase().padStart(4, "0")} '${String.fromCodePoint(code)}'`;
}

const alphanumeric = /[\p{L}\p{Nd}_]/u;

/** Throws TemplateError. */
export function tokens(template: string): readonly Token[] {
  return new Lexer(template).run();
}

class Lexer {
  readonly #template: string;
  readonly #tokens: Token[] = [];
  #at = 0;
  /** The text after ` -}}` loses its leading white space. */
  #isTrimmed = false;

  constructor(template: string) {
    this.#template = template;
  }

  run(): readonly Token[] {
    while (this.#at < this.#template.length) {
      this.#text();
      if (this.#at < this.#template.length) this.#action();
    }
    this.#add("end", "", this.#template.length);
    return this.#tokens;
  }

  #add(kind: TokenKind, text: string, at: number): void {
    this.#tokens.push({ kind, text, at });
  }

  #text(): void {
    const open = this.#template.indexOf("{{", this.#at);
    const end = open < 0 ? this.#template.length : open;
    let text = this.#template.slice(this.#at, end);
    if (this.#isTrimmed) text = text.replace(blanksAtStart, "");
    if (open >= 0 && this.#isTrimMarker(open + 2)) text = trimmedAtEnd(text);
    if (text !== "") this.#add("text", text, this.#at);
    this.#isTrimmed = false;
    this.#at = end;
  }

  /** `- ` after an opening delimiter: the space distinguishes it from a negative number. */
  #isTrimMarker(at: number): boolean {
    return this.#template[at] === "-" && blank.test(this.#template[at + 1] ?? "");
  }

  #action(): void {
    const open = this.#at;
    this.#at += this.#isTrimMarker(open + 2) ? 3 : 2;
    const comment = /[ \t\r\n]*\/\*/y;
    comment.lastIndex = this.#at;
    // Go allows white space before a comment only as part of the trim marker.
    const begin = comment.exec(this.#template);
    if (begin !== null && (begin[0] === "/*" || this.#at === open + 3)) {
      this.#comment(open, comment.lastIndex);
      return;
    }
    this.#add("open", "{{", open);
    while (!this.#close()) this.#token(open);
  }

  #comment(open: number, from: number): void {
    const end = this.#template.indexOf("*/", from);
    if (end < 0) throw new TemplateError(this.#template, open, "unclosed comment");
    const close = /([ \t\r\n]+-)?\}\}/y;
    close.lastIndex = end + 2;
    const match = close.exec(this.#template);
    if (match === null) throw new TemplateError(this.#template, open, "comment ends before closing delimiter");
    this.#isTrimmed = match[1] !== undefined;
    this.#at = close.lastIndex;
  }

  /** Consumes `}}` or ` -}}`. */
  #close(): boolean {
    const close = /([ \t\r\n]+-)?\}\}/y;
    close.lastIndex = this.#at;
    const match = close.exec(this.#template);
    if (match === null) return false;
    this.#add("close", "}}", this.#at);
    this.#isTrimmed = match[1] !== undefined;
    this.#at = close.lastIndex;
    return true;
  }

  #token(open: number): void {
    const at = this.#at;
    const char = this.#template[at];
    if (char === undefined) throw new TemplateError(this.#template, open, "unclosed action");
    if (char === '"' || char === "`" || char === "'") {
      this.#quoted(char);
      return;
    }
    for (const [kind, pattern] of patterns) {
      pattern.lastIndex = at;
      const match = pattern.exec(this.#template);
      if (match === null) continue;
      this.#at = pattern.lastIndex;
      if (kind === "number" && alphanumeric.test(this.#template[this.#at] ?? "")) {
        throw new TemplateError(this.#template, at, `bad number syntax: "${match[0]}${this.#template[this.#at]}"`);
      }
      this.#add(kind, kind === "field" || kind === "variable" ? match[0].slice(1) : match[0], at);
      return;
    }
    throw new TemplateError(this.#template, at, `unexpected ${JSON.stringify(char)} in an action`, {
      goReason: badCharacter(this.#template.codePointAt(at) ?? 0),
    });
  }

  #quoted(quote: string): void {
    const at = this.#at;
    let text = "";
    for (let next = at + 1; ; next += 1) {
      const char = this.#template[next];
      const isBroken = char === undefined || (char === "\n" && quote !== "`");
      if (isBroken) {
        const what = quote === "`" ? "raw quoted string" : quote === "'" ? "character constant" : "quoted string";
        throw new TemplateError(this.#template, at, `unterminated ${what}`);
      }
      if (char === quote) {
        this.#at = next + 1;
        break;
      }
      if (char === "\\" && quote !== "`") {
        const [value, end] = this.#escape(next);
        text += value;
        next = end - 1;
      } else text += char;
    }
    if (quote !== "'") this.#add("string", text, at);
    else if (Array.from(text).length === 1) this.#add("number", String(text.codePointAt(0)), at);
    else throw new TemplateError(this.#template, at, "a character constant must be one character");
  }

  /** The value of the escape at `at`, and its end. */
  #escape(at: number): readonly [string, number] {
    const escape = /\\(?:([abfnrtv\\'"])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3}))/y;
    escape.lastIndex = at;
    const match = escape.exec(this.#template);
    const [, letter, hex, short, long, octal] = match ?? [];
    if (letter !== undefined) return [escapes[letter] ?? letter, escape.lastIndex];
    const digits = hex ?? short ?? long;
    const code = digits === undefined ? Number.parseInt(octal ?? "", 8) : Number.parseInt(digits, 16);
    if (!(code <= 0x10_ff_ff)) throw new TemplateError(this.#template, at, "unknown escape in a quoted string");
    return [String.fromCodePoint(code), escape.lastIndex];
  }
}

const escapes: Readonly<Record<string, string>> = {
  a: "\u0007",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};
