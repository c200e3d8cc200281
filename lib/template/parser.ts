/**
 * Parses the tokens of a Go template. Supports actions with pipelines, variables, `if`, `with`, `range` with `break` and
 * `continue`, and comments. `define`, `template` and `block` are not supported: without them no template can call itself, so
 * each terminates.
 */
import { variablesMax as variablesInScopeMax } from "./budget.ts";
import { TemplateError } from "./error.ts";
import { tokens, type Token, type TokenKind } from "./lexer.ts";
import type { Command, Operand, Part, Pipeline } from "./tree.ts";

/** Maximum nesting of blocks and of parentheses: more than anyone writes, and safe for the stack. */
const depthMax = 100;

const blockWords = new Set(["if", "with", "range"]);

interface Parts {
  readonly parts: readonly Part[];
  /** The word that ended the parts; null at the end of the template. */
  readonly ending: { readonly word: "end" | "else"; readonly at: number } | null;
}

/** Throws TemplateError. `isFunction` tells which names are functions. */
export function parse(template: string, isFunction: (name: string) => boolean): readonly Part[] {
  return new Parser(template, isFunction).run();
}

class Parser {
  readonly #template: string;
  readonly #isFunction: (name: string) => boolean;
  readonly #tokens: readonly Token[];
  #next = 0;
  #depth = 0;
  #loops = 0;
  /** Variables in scope. */
  #variables: string[] = [""];

  constructor(template: string, isFunction: (name: string) => boolean) {
    this.#template = template;
    this.#isFunction = isFunction;
    this.#tokens = tokens(template);
  }

  run(): readonly Part[] {
    const { parts, ending } = this.#parts();
    if (ending !== null) throw this.#error(ending.at, `unexpected {{${ending.word}}}`);
    return parts;
  }

  #error(at: number, reason: string, goReason?: string): TemplateError {
    return new TemplateError(this.#template, at, reason, { goReason });
  }

  #peek(): Token {
    // The last token is "end", and nothing reads past it.
    return this.#tokens[this.#next] as Token;
  }

  #take(): Token {
    const token = this.#peek();
    if (token.kind !== "end") this.#next += 1;
    return token;
  }

  #peekPastSpace(): Token {
    while (this.#peek().kind === "space") this.#next += 1;
    return this.#peek();
  }

  #expect(kind: TokenKind, context: string): Token {
    const token = this.#peekPastSpace();
    if (token.kind !== kind) throw this.#unexpected(token, context);
    return this.#take();
  }

  #unexpected(token: Token, context: string): TemplateError {
    const what = token.kind === "end" ? "end of the template" : JSON.stringify(shown(token));
    return this.#error(token.at, `unexpected ${what} in ${context}`);
  }

  #deeper<Result>(at: number, read: () => Result): Result {
    this.#depth += 1;
    if (this.#depth > depthMax) throw this.#error(at, `nested more than ${depthMax} deep`);
    const result = read();
    this.#depth -= 1;
    return result;
  }

  /** Parses up to the end, or up to and including an `{{end}}` or `{{else`. */
  #parts(): Parts {
    const parts: Part[] = [];
    for (;;) {
      const token = this.#take();
      if (token.kind === "end") return { parts, ending: null };
      if (token.kind === "text") {
        parts.push({ kind: "text", text: token.text });
        continue;
      }
      const first = this.#peekPastSpace();
      if (first.kind === "word" && (first.text === "end" || first.text === "else")) {
        this.#take();
        return { parts, ending: { word: first.text, at: token.at } };
      }
      parts.push(this.#action(first));
    }
  }

  #action(first: Token): Part {
    if (first.kind === "word" && blockWords.has(first.text)) {
      this.#take();
      return this.#deeper(first.at, () => this.#block(first.text as "if" | "with" | "range", first.at));
    }
    if (first.kind === "word" && (first.text === "break" || first.text === "continue")) {
      this.#take();
      if (this.#loops === 0) throw this.#error(first.at, `{{${first.text}}} outside {{range}}`);
      this.#expect("close", first.text);
      return { kind: first.text };
    }
    if (first.kind === "word" && ["define", "template", "block"].includes(first.text)) {
      throw this.#error(first.at, `{{${first.text}}} is not supported`);
    }
    const pipeline = this.#pipeline("command", 1);
    this.#expect("close", "command");
    return { kind: "pipeline", pipeline };
  }

  #block(word: "if" | "with" | "range", at: number): Part {
    const outer = this.#variables.length;
    const pipeline = this.#pipeline(word, word === "range" ? 2 : 1);
    this.#expect("close", word);
    if (word === "range") this.#loops += 1;
    const { parts: body, ending } = this.#inner();
    if (word === "range") this.#loops -= 1;
    if (ending === null) throw this.#error(at, `{{${word}}} has no {{end}}`, "unexpected EOF");
    const otherwise = ending.word === "else" ? this.#otherwise(word, at) : [];
    if (ending.word === "end") this.#expect("close", "end");
    this.#variables.length = outer;
    return { kind: word, pipeline, body, otherwise };
  }

  /** Parts with their own variable scope. */
  #inner(): Parts {
    const outer = this.#variables.length;
    const found = this.#parts();
    this.#variables.length = outer;
    return found;
  }

  /** After `{{else`: the parts up to `{{end}}`, or for `{{else if …}}` a nested block, which shares that `{{end}}`. */
  #otherwise(word: "if" | "with" | "range", at: number): readonly Part[] {
    const next = this.#peekPastSpace();
    if (next.kind === "word" && next.text === word && word !== "range") {
      this.#take();
      return [this.#deeper(next.at, () => this.#block(word, next.at))];
    }
    this.#expect("close", "else");
    const { parts, ending } = this.#inner();
    if (ending === null) throw this.#error(at, `{{${word}}} has no {{end}}`, "unexpected EOF");
    if (ending.word === "else") throw this.#error(ending.at, "expected {{end}}, found {{else}}");
    this.#expect("close", "end");
    return parts;
  }

  /** Parses up to its terminator, `}}` or `)`, without consuming it. */
  #pipeline(context: string, variablesMax: number): Pipeline {
    const { at } = this.#peekPastSpace();
    const { variables, isAssignment } = this.#declaration(context, variablesMax);
    const commands: Command[] = [];
    for (;;) {
      const first = this.#peekPastSpace();
      if (first.kind === "close" || first.kind === ")") {
        throw this.#error(first.at, commands.length === 0 ? `missing value for ${context}` : `missing command after |`);
      }
      const command = this.#command(context);
      if (commands.length > 0 && !isCallable(command.operands[0])) {
        throw this.#error(command.at, `non executable command in pipeline stage ${commands.length + 1}`);
      }
      commands.push(command);
      const next = this.#peekPastSpace();
      if (next.kind !== "|") break;
      this.#take();
    }
    // A variable is not in scope in its own declaration.
    if (!isAssignment) this.#variables.push(...variables);
    if (this.#variables.length > variablesInScopeMax)
      throw this.#error(at, `too many variables: the limit is ${variablesInScopeMax}`);
    return { variables, isAssignment, commands, at };
  }

  /** Parses `$x :=`, `$x =`, or for range `$k, $v :=`. Consumes nothing if there is none. */
  #declaration(
    context: string,
    variablesMax: number,
  ): { readonly variables: readonly string[]; readonly isAssignment: boolean } {
    const from = this.#next;
    const variables: string[] = [];
    for (;;) {
      const token = this.#peekPastSpace();
      if (token.kind !== "variable") break;
      this.#take();
      variables.push(token.text);
      const next = this.#peekPastSpace();
      if (next.kind === ",") {
        if (variables.length >= variablesMax) throw this.#error(next.at, `too many declarations in ${context}`);
        this.#take();
        continue;
      }
      if (next.kind !== ":=" && next.kind !== "=") break;
      this.#take();
      const isAssignment = next.kind === "=";
      const unknown = isAssignment ? variables.find((name) => !this.#variables.includes(name)) : undefined;
      if (unknown !== undefined) throw this.#error(token.at, `undefined variable "$${unknown}"`);
      return { variables, isAssignment };
    }
    this.#next = from;
    return { variables: [], isAssignment: false };
  }

  #command(context: string): Command {
    const { at } = this.#peekPastSpace();
    const operands: Operand[] = [];
    const texts: string[] = [];
    for (;;) {
      const from = this.#peek().at;
      operands.push(this.#operand(context));
      const next = this.#peek();
      texts.push(this.#template.slice(from, next.at));
      if (next.kind === "space") {
        const after = this.#peekPastSpace();
        if (["close", "|", ")"].includes(after.kind)) return { operands, at, text: texts.join(" ") };
        continue;
      }
      if (["close", "|", ")"].includes(next.kind)) return { operands, at, text: texts.join(" ") };
      throw this.#unexpected(next, context);
    }
  }

  #operand(context: string): Operand {
    const token = this.#take();
    const { at } = token;
    switch (token.kind) {
      case "field":
        return { kind: "fields", names: [token.text, ...this.#names()], at };
      case "dot":
        return { kind: "dot", at };
      case "variable":
        if (!this.#variables.includes(token.text)) throw this.#error(at, `undefined variable "$${token.text}"`);
        return { kind: "variable", name: token.text, names: this.#names(), at };
      case "string":
        return { kind: "literal", value: token.text, at };
      case "number":
        return { kind: "literal", value: this.#number(token), at };
      case "word":
        return this.#word(token);
      case "(": {
        const pipeline = this.#deeper(at, () => this.#pipeline("parenthesized pipeline", 1));
        this.#expect(")", "parenthesized pipeline");
        return { kind: "group", pipeline, names: this.#names(), at };
      }
      default:
        throw this.#unexpected(token, context);
    }
  }

  #word({ at, text }: Token): Operand {
    if (text === "true" || text === "false") return { kind: "literal", value: text === "true", at };
    if (text === "nil") return { kind: "nil", at };
    if (!this.#isFunction(text)) throw this.#error(at, `function "${text}" not defined`);
    return { kind: "function", name: text, at };
  }

  /** The `.a.b` directly after an operand. */
  #names(): readonly string[] {
    const names: string[] = [];
    while (this.#peek().kind === "field") names.push(this.#take().text);
    return names;
  }

  #number({ at, text }: Token): number {
    const digits = text.replaceAll("_", "");
    const sign = digits.startsWith("-") ? -1 : 1;
    const bare = digits.replace(/^[+-]/, "");
    // As in Go, a leading zero means octal.
    const value = /^0[0-7]+$/.test(bare) ? Number.parseInt(bare, 8) : Number(bare);
    if (Number.isNaN(value)) throw this.#error(at, `bad number syntax: "${text}"`);
    return sign * value;
  }
}

/** Whether a pipeline can pass the previous value to it. */
function isCallable(first: Operand | undefined): boolean {
  return first !== undefined && first.kind !== "literal" && first.kind !== "nil" && first.kind !== "dot";
}

function shown({ kind, text }: Token): string {
  if (kind === "field") return `.${text}`;
  return kind === "variable" ? `$${text}` : text;
}
