/**
 * Expressions of HCL, as literals of schemas and templates in configurations use them (reference §3.3, §3.4): literals,
 * operators, conditionals, index and attribute access, function calls, templates with `${…}` and `%{ if }`. `for` is not
 * known, neither as expression nor as directive.
 */
import { calculate, compareDecimals, decimal, decimalText, parseDecimal, type Operator } from "./decimal.ts";
import { functions } from "./functions.ts";
import {
  ConversionError,
  boolValue,
  compareValues,
  convert,
  nullValue,
  numberValue,
  textValue,
  type Value,
} from "./value.ts";

/** What names stand for. */
export type Scope = ReadonlyMap<string, Value>;

export const emptyScope: Scope = new Map();

export class ExpressionError extends Error {
  override readonly name = "ExpressionError";
}

const depthMax = 64;

/** Throws ExpressionError. */
export function evaluate(text: string, scope: Scope = emptyScope): Value {
  const parser = new Parser(text, scope);
  const value = parser.expression();
  parser.end();
  return value;
}

/**
 * The value of a text in which `${…}` and `%{…}` are replaced, and `$${` and `%%{` stand for themselves. A text that is one
 * interpolation and nothing else is what that is, of whatever type. Throws ExpressionError.
 */
export function evaluateTemplate(text: string, scope: Scope = emptyScope): Value {
  if (!text.includes("${") && !text.includes("%{")) return textValue(text);
  return new Parser(text, scope).template(null);
}

function fail(message: string): never {
  throw new ExpressionError(message);
}

function truth(value: Value): boolean {
  const converted = converting(() => convert(value, { kind: "bool" }));
  return converted.kind === "bool" ? converted.is : fail("a condition is null");
}

function converting(run: () => Value): Value {
  try {
    return run();
  } catch (error) {
    if (error instanceof ConversionError) fail(error.message);
    throw error;
  }
}

function asText(value: Value): string {
  const converted = converting(() => convert(value, { kind: "string" }));
  return converted.kind === "string" ? converted.text : fail("null cannot be part of a text");
}

function arithmetic(operator: Operator, left: Value, right: Value): Value {
  const [a, b] = [left, right].map((value) => converting(() => convert(value, { kind: "number" })));
  if (a?.kind !== "number" || b?.kind !== "number") return fail(`${operator} of null`);
  const result = calculate(operator, a.number, b.number);
  return result === null ? fail("division by zero") : numberValue(result);
}

const escapes: Readonly<Record<string, string>> = { n: "\n", r: "\r", t: "\t", '"': '"', "\\": "\\" };

class Parser {
  readonly #text: string;
  readonly #scope: Scope;
  #at = 0;
  #depth = 0;
  /** Newlines end nothing within brackets; a literal's expression is one line or all within them. */

  constructor(text: string, scope: Scope) {
    this.#text = text;
    this.#scope = scope;
  }

  end(): void {
    this.#space();
    if (this.#at < this.#text.length) fail(`unexpected ${JSON.stringify(this.#text.slice(this.#at, this.#at + 12))}`);
  }

  expression(): Value {
    this.#depth += 1;
    if (this.#depth > depthMax) fail("nested too deeply");
    const condition = this.#or();
    let value = condition;
    if (this.#accept("?")) {
      // Both sides are evaluated: neither has an effect, and an error in either is one of the text.
      const yes = this.expression();
      this.#expect(":");
      const no = this.expression();
      value = truth(condition) ? yes : no;
    }
    this.#depth -= 1;
    return value;
  }

  #space(): void {
    for (;;) {
      const rest = /^(?:\s+|#[^\n]*|\/\/[^\n]*|\/\*[\s\S]*?\*\/)/.exec(this.#text.slice(this.#at, this.#at + 4_096));
      if (rest === null) return;
      this.#at += rest[0].length;
    }
  }

  #peek(token: string): boolean {
    this.#space();
    return this.#text.startsWith(token, this.#at);
  }

  #accept(token: string): boolean {
    if (!this.#peek(token)) return false;
    this.#at += token.length;
    return true;
  }

  #expect(token: string): void {
    if (!this.#accept(token)) fail(`${JSON.stringify(token)} is missing`);
  }

  #or(): Value {
    let left = this.#and();
    while (this.#accept("||")) {
      const right = this.#and();
      left = boolValue(truth(left) || truth(right));
    }
    return left;
  }

  #and(): Value {
    let left = this.#equality();
    while (this.#accept("&&")) {
      const right = this.#equality();
      left = boolValue(truth(left) && truth(right));
    }
    return left;
  }

  #equality(): Value {
    let left = this.#comparison();
    for (;;) {
      if (this.#accept("==")) left = boolValue(compareValues(left, this.#comparison()) === 0);
      else if (this.#accept("!=")) left = boolValue(compareValues(left, this.#comparison()) !== 0);
      else return left;
    }
  }

  #comparison(): Value {
    let left = this.#sum();
    for (;;) {
      const operator = ["<=", ">=", "<", ">"].find((token) => this.#accept(token));
      if (operator === undefined) return left;
      const [a, b] = [left, this.#sum()].map((value) => converting(() => convert(value, { kind: "number" })));
      if (a?.kind !== "number" || b?.kind !== "number") return fail(`${operator} of null`);
      const order = compareDecimals(a.number, b.number);
      const is = { "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0 }[operator] === true;
      left = boolValue(is);
    }
  }

  #sum(): Value {
    let left = this.#product();
    for (;;) {
      const operator = (["+", "-"] as const).find((token) => this.#accept(token));
      if (operator === undefined) return left;
      left = arithmetic(operator, left, this.#product());
    }
  }

  #product(): Value {
    let left = this.#unary();
    for (;;) {
      const operator = (["*", "/", "%"] as const).find((token) => !this.#peek("%{") && this.#accept(token));
      if (operator === undefined) return left;
      left = arithmetic(operator, left, this.#unary());
    }
  }

  #unary(): Value {
    if (this.#accept("-")) return arithmetic("-", numberValue(decimal(0n)), this.#unary());
    if (this.#peek("!") && !this.#peek("!=") && this.#accept("!")) return boolValue(!truth(this.#unary()));
    return this.#access(this.#primary());
  }

  #access(value: Value): Value {
    let at = value;
    for (;;) {
      if (/^\.[A-Za-z_0-9]/.test(this.#text.slice(this.#at, this.#at + 2))) {
        this.#at += 1;
        const name = /^[\w-]+/.exec(this.#text.slice(this.#at))?.[0] ?? "";
        this.#at += name.length;
        at = step(at, textValue(name));
      } else if (this.#text[this.#at] === "[") {
        this.#at += 1;
        const key = this.expression();
        this.#expect("]");
        at = step(at, key);
      } else return at;
    }
  }

  #primary(): Value {
    this.#space();
    const rest = this.#text.slice(this.#at);
    const number = /^\d+(\.\d+)?([eE][+-]?\d+)?/.exec(rest)?.[0];
    if (number !== undefined) {
      this.#at += number.length;
      const parsed = parseDecimal(number);
      return parsed === null ? fail(`${number} is too large`) : numberValue(parsed);
    }
    if (rest.startsWith("<<")) return this.#heredoc();
    if (this.#accept('"')) {
      const value = this.template('"');
      return value;
    }
    if (this.#accept("(")) {
      const value = this.expression();
      this.#expect(")");
      return value;
    }
    if (this.#accept("[")) return this.#tuple();
    if (this.#accept("{")) return this.#object();
    const word = /^[A-Za-z_][\w-]*/.exec(rest)?.[0];
    if (word === undefined)
      return fail(rest === "" ? "an expression is missing" : `unexpected ${JSON.stringify(rest.slice(0, 12))}`);
    this.#at += word.length;
    if (this.#text[this.#at] === "(") return this.#call(word);
    if (word === "true" || word === "false") return boolValue(word === "true");
    if (word === "null") return nullValue;
    const value = this.#scope.get(word);
    return value ?? fail(`there is no variable named "${word}"`);
  }

  #call(name: string): Value {
    const body = functions.get(name);
    if (body === undefined) return fail(`there is no function named "${name}"`);
    this.#expect("(");
    const args: Value[] = [];
    while (!this.#accept(")")) {
      const value = this.expression();
      if (this.#accept("...")) {
        if (!("items" in value)) fail("only a list can be spread");
        else args.push(...value.items);
      } else args.push(value);
      if (!this.#accept(",") && !this.#peek(")")) fail('"," is missing');
    }
    return converting(() => body(args));
  }

  #tuple(): Value {
    const items: Value[] = [];
    if (/^for\b/.test(this.#text.slice(this.#at).trimStart())) fail("'for' is not supported");
    while (!this.#accept("]")) {
      items.push(this.expression());
      if (!this.#accept(",") && !this.#peek("]")) fail('"," is missing');
    }
    return { kind: "tuple", items };
  }

  #object(): Value {
    const entries = new Map<string, Value>();
    if (/^for\b/.test(this.#text.slice(this.#at).trimStart())) fail("'for' is not supported");
    while (!this.#accept("}")) {
      this.#space();
      const word = /^[A-Za-z_][\w-]*(?=\s*[=:])/.exec(this.#text.slice(this.#at))?.[0];
      if (word !== undefined) this.#at += word.length;
      const key = word ?? asText(this.#primary());
      if (!this.#accept("=") && !this.#accept(":")) fail('"=" is missing');
      entries.set(key.normalize("NFC"), this.expression());
      this.#accept(",");
    }
    return { kind: "object", entries };
  }

  #heredoc(): Value {
    const head = /^<<(-?)([A-Za-z_]\w*)\n/.exec(this.#text.slice(this.#at));
    if (head === null) return fail("a heredoc begins with <<NAME and a new line");
    this.#at += head[0].length;
    const lines: string[] = [];
    for (;;) {
      const end = this.#text.indexOf("\n", this.#at);
      const line = this.#text.slice(this.#at, end === -1 ? undefined : end);
      this.#at = end === -1 ? this.#text.length : end + 1;
      if (line.trim() === head[2]) break;
      if (end === -1) fail(`the heredoc ${head[2]} has no end`);
      lines.push(line);
    }
    const indent = Math.min(
      ...lines.filter((line) => line.trim() !== "").map((line) => /^\s*/.exec(line)?.[0].length ?? 0),
    );
    const text = lines.map((line) => `${head[1] === "-" ? line.slice(indent) : line}\n`).join("");
    return new Parser(text, this.#scope).template(null);
  }

  /** Up to the quote, or to the end of the text. Within quotes backslashes mean something. */
  template(quote: '"' | null): Value {
    const parts = this.#parts(quote, []);
    if (quote !== null) this.#expect(quote);
    const [only] = parts;
    if (parts.length === 1 && only !== undefined && only.isWhole) return only.value;
    return textValue(parts.map(({ value }) => asText(value)).join(""));
  }

  #parts(quote: '"' | null, until: readonly string[]): { value: Value; isWhole: boolean }[] {
    const parts: { value: Value; isWhole: boolean }[] = [];
    let text = "";
    let trimNext = false;
    const flush = (): void => {
      if (text !== "") parts.push({ value: textValue(trimNext ? text.trimStart() : text), isWhole: false });
      if (text !== "") trimNext = false;
      text = "";
    };
    for (;;) {
      const char = this.#text[this.#at];
      if (char === undefined) {
        if (quote !== null) fail("a string has no end");
        if (until.length > 0) fail(`%{ ${until.at(-1)} } is missing`);
        break;
      }
      if (char === quote) break;
      const mark = this.#text.slice(this.#at, this.#at + 3);
      if (mark === "$${" || mark === "%%{") {
        text += mark.slice(1);
        this.#at += 3;
      } else if (mark.startsWith("${")) {
        this.#at += 2;
        if (this.#text[this.#at] === "~") {
          this.#at += 1;
          text = text.trimEnd();
        }
        flush();
        const value = this.expression();
        const trims = this.#accept("~");
        this.#expect("}");
        parts.push({ value, isWhole: true });
        trimNext = trims;
      } else if (mark.startsWith("%{")) {
        const directive = /^%\{(~?)\s*(\w+)/.exec(this.#text.slice(this.#at));
        if (directive === null) return fail("a directive has no name");
        if (directive[1] === "~") text = text.trimEnd();
        flush();
        const word = directive[2] as string;
        if (until.includes(word)) break;
        if (word !== "if") fail(`the directive '${word}' is not supported here`);
        this.#at += directive[0].length;
        parts.push({ value: this.#conditional(quote), isWhole: false });
      } else if (char === "\\" && quote !== null) text += this.#escape();
      else {
        text += char;
        this.#at += 1;
      }
    }
    flush();
    return parts;
  }

  #conditional(quote: '"' | null): Value {
    const condition = truth(this.expression());
    this.#closeDirective();
    const texts = { yes: this.#branch(quote, ["else", "endif"]), no: "" };
    if (this.#directive() === "else") {
      this.#closeDirective();
      texts.no = this.#branch(quote, ["endif"]);
      this.#directive();
    }
    this.#closeDirective();
    return textValue(condition ? texts.yes : texts.no);
  }

  #branch(quote: '"' | null, until: readonly string[]): string {
    return this.#parts(quote, until)
      .map(({ value }) => asText(value))
      .join("");
  }

  #directive(): string {
    const directive = /^%\{~?\s*(\w+)/.exec(this.#text.slice(this.#at));
    if (directive === null) return fail("a directive is missing");
    this.#at += directive[0].length;
    return directive[1] as string;
  }

  #closeDirective(): void {
    this.#accept("~");
    this.#expect("}");
  }

  #escape(): string {
    const rest = this.#text.slice(this.#at + 1, this.#at + 10);
    const unicode = /^u([0-9A-Fa-f]{4})|^U([0-9A-Fa-f]{8})/.exec(rest);
    if (unicode !== null) {
      this.#at += 1 + unicode[0].length;
      return String.fromCodePoint(Number.parseInt((unicode[1] ?? unicode[2]) as string, 16));
    }
    const escaped = escapes[rest[0] ?? ""];
    if (escaped === undefined) fail(`\\${rest[0] ?? ""} is no escape`);
    this.#at += 2;
    return escaped as string;
  }
}

function step(value: Value, key: Value): Value {
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
