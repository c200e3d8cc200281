/**
 * HCL expressions, as schemas use them in literals and configurations in templates (reference §3.3, §3.4): literals,
 * operators, conditionals, `for`, index, attribute and splat access, function calls, templates with `${…}` and `%{…}`.
 * A text is compiled once into a function of its scope, since a loop evaluates its body many times.
 */
import { fail } from "./cursor.ts";
import { decimal, parseDecimal } from "./decimal.ts";
import { functions } from "./functions.ts";
import {
  Visits,
  arithmetic,
  asText,
  chosen,
  converting,
  isEqual,
  objectLoop,
  ordered,
  splat,
  step,
  truth,
  tupleLoop,
  type Node,
  type Scope,
} from "./operations.ts";
import { TemplateParser } from "./template-parser.ts";
import { boolValue, nullValue, numberValue, textValue, type Value } from "./value.ts";

export { ExpressionError } from "./cursor.ts";
export type { Scope } from "./operations.ts";

export const emptyScope: Scope = new Map();

const depthMax = 64;

/** Throws ExpressionError. */
export function evaluate(text: string, scope: Scope = emptyScope): Value {
  const parser = new Parser(text, new Visits());
  const node = parser.expression();
  parser.end();
  return node(scope);
}

/**
 * Evaluates a template: replaces `${…}` and `%{…}`, and unescapes `$${` and `%%{`. A template that consists of one
 * interpolation keeps that value's type. Throws ExpressionError.
 */
export function evaluateTemplate(text: string, scope: Scope = emptyScope): Value {
  if (!text.includes("${") && !text.includes("%{")) return textValue(text);
  return new Parser(text, new Visits()).template(null)(scope);
}

type Binary = (left: Value, right: Value) => Value;

const comparisons: readonly (readonly [string, Binary])[] = (["<=", ">=", "<", ">"] as const).map((operator) => [
  operator,
  (left, right) => ordered(operator, left, right),
]);
const sums: readonly (readonly [string, Binary])[] = (["+", "-"] as const).map((operator) => [
  operator,
  (left, right) => arithmetic(operator, left, right),
]);
const products: readonly (readonly [string, Binary])[] = (["*", "/", "%"] as const).map((operator) => [
  operator,
  (left, right) => arithmetic(operator, left, right),
]);

/** In order of increasing precedence. Both operands are always evaluated: Nomad's HCL does not short-circuit. */
const levels: readonly (readonly (readonly [string, Binary])[])[] = [
  [["||", (left, right) => boolValue([truth(left), truth(right)].includes(true))]],
  [["&&", (left, right) => boolValue(![truth(left), truth(right)].includes(false))]],
  [
    ["==", (left, right) => boolValue(isEqual(left, right))],
    ["!=", (left, right) => boolValue(!isEqual(left, right))],
  ],
  comparisons,
  sums,
  products,
];

class Parser extends TemplateParser {
  #depth = 0;

  expression(): Node {
    this.#depth += 1;
    if (this.#depth > depthMax) fail("nested too deeply");
    let node = this.#binary(0);
    if (this.accept("?")) {
      const yes = this.expression();
      this.expect(":");
      node = chosen(node, yes, this.expression());
    }
    this.#depth -= 1;
    return node;
  }

  #binary(level: number): Node {
    const operators = levels[level];
    if (operators === undefined) return this.#unary();
    let left = this.#binary(level + 1);
    for (;;) {
      // "%" at the beginning of a directive is not the remainder operator.
      const found = operators.find(([token]) => !this.peek("%{") && this.accept(token));
      if (found === undefined) return left;
      const [one, other, apply] = [left, this.#binary(level + 1), found[1]];
      left = (scope) => apply(one(scope), other(scope));
    }
  }

  #unary(): Node {
    if (this.accept("-")) {
      const of = this.#nestedUnary();
      return (scope) => arithmetic("-", numberValue(decimal(0n)), of(scope));
    }
    if (this.peek("!") && !this.peek("!=") && this.accept("!")) {
      const of = this.#nestedUnary();
      return (scope) => boolValue(!truth(of(scope)));
    }
    return this.#access(this.#primary());
  }

  #nestedUnary(): Node {
    this.#depth += 1;
    if (this.#depth > depthMax) fail("nested too deeply");
    const node = this.#unary();
    this.#depth -= 1;
    return node;
  }

  #access(node: Node): Node {
    let at = node;
    for (;;) {
      const found = this.#attribute() ?? this.#index();
      if (found !== null) {
        const of = at;
        at = (scope) => step(of(scope), found(scope));
      } else if (this.text.startsWith(".*", this.at)) {
        this.at += 2;
        at = this.#splat(at, () => this.#attribute());
      } else if (/^\[\s*\*\s*\]/.test(this.text.slice(this.at))) {
        this.at = this.text.indexOf("]", this.at) + 1;
        at = this.#wholeSplat(at);
      } else return at;
    }
  }

  /** Parses `.name` or `.0`; null if neither follows. */
  #attribute(): Node | null {
    if (!/^\.[\p{ID_Start}_0-9]/u.test(this.text.slice(this.at, this.at + 3))) return null;
    const name = /^[\p{ID_Continue}-]+/u.exec(this.text.slice(this.at + 1))?.[0] ?? "";
    this.at += 1 + name.length;
    const key = textValue(name);
    return () => key;
  }

  #index(): Node | null {
    if (this.text[this.at] !== "[" || /^\[\s*\*\s*\]/.test(this.text.slice(this.at))) return null;
    this.at += 1;
    const key = this.expression();
    this.expect("]");
    return key;
  }

  /** For `.*`, only attributes apply to each element. */
  #splat(of: Node, next: () => Node | null): Node {
    const keys: Node[] = [];
    for (let key = next(); key !== null; key = next()) keys.push(key);
    const { visits } = this;
    return (scope) => splat(of(scope), (item) => keys.reduce((value, key) => step(value, key(scope)), item), visits);
  }

  /** For `[*]`, everything that follows applies to each element. */
  #wholeSplat(of: Node): Node {
    let item: Value = nullValue;
    this.#depth += 1;
    if (this.#depth > depthMax) fail("nested too deeply");
    const each = this.#access(() => item);
    this.#depth -= 1;
    const { visits } = this;
    return (scope) =>
      splat(
        of(scope),
        (element) => {
          item = element;
          return each(scope);
        },
        visits,
      );
  }

  #primary(): Node {
    this.space();
    const rest = this.text.slice(this.at);
    const number = /^\d+(\.\d+)?([eE][+-]?\d+)?/.exec(rest)?.[0];
    if (number !== undefined) {
      this.at += number.length;
      const parsed = parseDecimal(number);
      const value = parsed === null ? fail(`${number} is too large`) : numberValue(parsed);
      return () => value;
    }
    if (rest.startsWith("<<")) return this.#heredoc();
    if (this.accept('"')) return this.template('"');
    if (this.accept("(")) {
      const node = this.expression();
      this.expect(")");
      return node;
    }
    if (this.accept("[")) return this.#tuple();
    if (this.accept("{")) return this.#object();
    const word = this.name();
    if (word === null)
      return fail(rest === "" ? "expected an expression" : `unexpected ${JSON.stringify(rest.slice(0, 12))}`);
    if (this.text[this.at] === "(") return this.#call(word);
    if (word === "true" || word === "false") return () => boolValue(word === "true");
    if (word === "null") return () => nullValue;
    return (scope) => scope.get(word) ?? fail(`there is no variable named "${word}"`);
  }

  #call(name: string): Node {
    const body = functions.get(name);
    if (body === undefined) return fail(`there is no function named "${name}"`);
    this.expect("(");
    const args: ((scope: Scope) => readonly Value[])[] = [];
    while (!this.accept(")")) {
      const node = this.expression();
      if (this.accept("...")) args.push((scope) => spread(node(scope)));
      else args.push((scope) => [node(scope)]);
      if (!this.accept(",") && !this.peek(")")) fail('expected ","');
    }
    return (scope) => converting(() => body(args.flatMap((argument) => argument(scope))));
  }

  #tuple(): Node {
    if (this.acceptWord("for")) {
      const head = this.loopHead();
      this.expect(":");
      const body = this.expression();
      const condition = this.acceptWord("if") ? this.expression() : null;
      this.expect("]");
      return tupleLoop({ ...head, condition }, body, this.visits);
    }
    const items: Node[] = [];
    while (!this.accept("]")) {
      items.push(this.expression());
      if (!this.accept(",") && !this.peek("]")) fail('expected ","');
    }
    return (scope) => ({ kind: "tuple", items: items.map((item) => item(scope)) });
  }

  #object(): Node {
    if (this.acceptWord("for")) {
      const head = this.loopHead();
      this.expect(":");
      const key = this.expression();
      this.expect("=>");
      const body = this.expression();
      const isGrouping = this.accept("...");
      const condition = this.acceptWord("if") ? this.expression() : null;
      this.expect("}");
      return objectLoop({ ...head, condition }, key, body, isGrouping, this.visits);
    }
    const entries: (readonly [Node, Node])[] = [];
    while (!this.accept("}")) {
      this.space();
      const word = /^[\p{ID_Start}_][\p{ID_Continue}-]*(?=\s*[=:])/u.exec(this.text.slice(this.at))?.[0];
      if (word !== undefined) this.at += word.length;
      const key = word === undefined ? this.#primary() : () => textValue(word);
      if (!this.accept("=") && !this.accept(":")) fail('expected "="');
      entries.push([key, this.expression()]);
      if (!this.accept(",") && !this.peek("}") && !this.isOnNewLine()) fail('expected "," or a new line');
    }
    return (scope) => ({
      kind: "object",
      entries: new Map(entries.map(([key, value]) => [asText(key(scope)), value(scope)])),
    });
  }

  #heredoc(): Node {
    const head = /^<<(-?)([A-Za-z_]\w*)\n/.exec(this.text.slice(this.at));
    if (head === null) return fail("a heredoc must begin with <<NAME and a new line");
    this.at += head[0].length;
    const lines: string[] = [];
    for (;;) {
      const end = this.text.indexOf("\n", this.at);
      const line = this.text.slice(this.at, end === -1 ? undefined : end);
      this.at = end === -1 ? this.text.length : end + 1;
      if (line.trim() === head[2]) break;
      if (end === -1) fail(`unterminated heredoc ${head[2]}`);
      lines.push(line);
    }
    const indent = Math.min(
      ...lines.filter((line) => line.trim() !== "").map((line) => /^\s*/.exec(line)?.[0].length ?? 0),
    );
    const text = lines.map((line) => `${head[1] === "-" ? line.slice(indent) : line}\n`).join("");
    return new Parser(text, this.visits).template(null);
  }
}

function spread(value: Value): readonly Value[] {
  return "items" in value ? value.items : fail("only a list can be spread");
}
