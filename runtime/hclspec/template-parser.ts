/** Templates: texts with `${…}`, `%{ if }` and `%{ for }`. A `~` beside a mark takes away the space on that side. */
import { Cursor, fail } from "./cursor.ts";
import { asText, truth, visited, type Loop, type Node, type Visits } from "./operations.ts";
import { textValue } from "./value.ts";

const escapes: Readonly<Record<string, string>> = { n: "\n", r: "\r", t: "\t", '"': '"', "\\": "\\" };

type Part =
  | { readonly kind: "text"; readonly text: string }
  /** `isValue`: an interpolation, which alone in its text keeps its type. */
  | { readonly kind: "node"; readonly node: Node; readonly isValue: boolean };

type Quote = '"' | null;

export abstract class TemplateParser extends Cursor {
  protected readonly visits: Visits;

  constructor(text: string, visits: Visits) {
    super(text);
    this.visits = visits;
  }

  abstract expression(): Node;

  /** `for` is read already; up to and without the colon of an expression, or the end of a directive. */
  protected loopHead(): Omit<Loop, "condition"> {
    const first = this.name() ?? fail("a name is missing behind 'for'");
    const second = this.accept(",") ? (this.name() ?? fail("a name is missing behind ','")) : null;
    if (!this.acceptWord("in")) fail("'in' is missing");
    const collection = this.expression();
    return second === null
      ? { keyName: null, valueName: first, collection }
      : { keyName: first, valueName: second, collection };
  }

  /** Up to the quote, or to the end of the text. Within quotes backslashes mean something. */
  template(quote: Quote): Node {
    const parts = this.#parts(quote, [], false);
    if (quote !== null) this.expect(quote);
    const [only] = parts;
    if (parts.length === 1 && only?.kind === "node" && only.isValue) return only.node;
    return joined(parts);
  }

  /** `until`: the directives that end this part of the text, before which it stops. */
  #parts(quote: Quote, until: readonly string[], trimsFirst: boolean): readonly Part[] {
    const parts: Part[] = [];
    let text = "";
    let trims = trimsFirst;
    const flush = (trimsEnd: boolean): void => {
      const start = trims ? text.trimStart() : text;
      const kept = trimsEnd ? start.trimEnd() : start;
      if (kept !== "") parts.push({ kind: "text", text: kept });
      text = "";
      trims = false;
    };
    for (;;) {
      const char = this.text[this.at];
      if (char === undefined) {
        if (quote !== null) fail("a string has no end");
        if (until.length > 0) fail(`%{ ${until.at(-1)} } is missing`);
        break;
      }
      if (char === quote) {
        if (until.length > 0) fail(`%{ ${until.at(-1)} } is missing`);
        break;
      }
      const mark = this.text.slice(this.at, this.at + 3);
      if (mark === "$${" || mark === "%%{") {
        text += mark.slice(1);
        this.at += 3;
      } else if (mark.startsWith("${")) {
        this.at += 2;
        const trimsEnd = this.text[this.at] === "~";
        if (trimsEnd) this.at += 1;
        flush(trimsEnd);
        parts.push({ kind: "node", node: this.expression(), isValue: true });
        trims = this.#close();
      } else if (mark.startsWith("%{")) {
        const directive = /^%\{(~?)\s*(\w+)/.exec(this.text.slice(this.at));
        if (directive === null) return fail("a directive has no name");
        flush(directive[1] === "~");
        const word = directive[2] as string;
        if (until.includes(word)) break;
        this.at += directive[0].length;
        if (word !== "if" && word !== "for") return fail(`unexpected directive '${word}'`);
        const made = word === "if" ? this.#conditional(quote) : this.#loop(quote);
        parts.push({ kind: "node", node: made.node, isValue: false });
        trims = made.trims;
      } else if (char === "\\" && quote !== null) text += this.#escape();
      else {
        text += char;
        this.at += 1;
      }
    }
    flush(false);
    return parts;
  }

  #conditional(quote: Quote): { readonly node: Node; readonly trims: boolean } {
    const condition = this.expression();
    const yes = joined(this.#parts(quote, ["else", "endif"], this.#close()));
    let no: Node = () => textValue("");
    if (this.#directive() === "else") {
      no = joined(this.#parts(quote, ["endif"], this.#close()));
      this.#directive();
    }
    return { node: (scope) => (truth(condition(scope)) ? yes : no)(scope), trims: this.#close() };
  }

  #loop(quote: Quote): { readonly node: Node; readonly trims: boolean } {
    const loop = { ...this.loopHead(), condition: null };
    const body = joined(this.#parts(quote, ["endfor"], this.#close()));
    this.#directive();
    const { visits } = this;
    const node: Node = (scope) =>
      textValue(Array.from(visited(loop, scope, visits), (inner) => asText(body(inner))).join(""));
    return { node, trims: this.#close() };
  }

  #directive(): string {
    const directive = /^%\{~?\s*(\w+)/.exec(this.text.slice(this.at));
    if (directive === null) return fail("a directive is missing");
    this.at += directive[0].length;
    return directive[1] as string;
  }

  /** Reads the end of a mark: whether it takes away the space behind it. */
  #close(): boolean {
    const trims = this.accept("~");
    this.expect("}");
    return trims;
  }

  #escape(): string {
    const rest = this.text.slice(this.at + 1, this.at + 10);
    const unicode = /^u([0-9A-Fa-f]{4})|^U([0-9A-Fa-f]{8})/.exec(rest);
    if (unicode !== null) {
      this.at += 1 + unicode[0].length;
      const code = Number.parseInt((unicode[1] ?? unicode[2]) as string, 16);
      return code > 0x10_ff_ff ? fail(`\\${unicode[0]} is no character`) : String.fromCodePoint(code);
    }
    const escaped = escapes[rest[0] ?? ""];
    if (escaped === undefined) fail(`\\${rest[0] ?? ""} is no escape`);
    this.at += 2;
    return escaped as string;
  }
}

function joined(parts: readonly Part[]): Node {
  return (scope) =>
    textValue(parts.map((part) => (part.kind === "text" ? part.text : asText(part.node(scope)))).join(""));
}
