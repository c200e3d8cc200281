/** Templates: text with `${…}`, `%{ if }` and `%{ for }`. A `~` beside a marker trims the space on that side. */
import { Cursor, fail } from "./cursor.ts";
import { asText, truth, visited, type Loop, type Node, type Visits } from "./operations.ts";
import { textValue } from "./value.ts";

const escapes: Readonly<Record<string, string>> = { n: "\n", r: "\r", t: "\t", '"': '"', "\\": "\\" };

type Part =
  | { readonly kind: "text"; readonly text: string }
  /** `isValue`: an interpolation, which keeps its type when it is the whole template. */
  | { readonly kind: "node"; readonly node: Node; readonly isValue: boolean };

type Quote = '"' | null;

export abstract class TemplateParser extends Cursor {
  protected readonly visits: Visits;

  constructor(text: string, visits: Visits) {
    super(text);
    this.visits = visits;
  }

  abstract expression(): Node;

  /** Parses after `for`, up to and including the colon of an expression, or up to the end of a directive. */
  protected loopHead(): Omit<Loop, "condition"> {
    const first = this.name() ?? fail("expected a name after 'for'");
    const second = this.accept(",") ? (this.name() ?? fail("expected a name after ','")) : null;
    if (!this.acceptWord("in")) fail("expected 'in'");
    const collection = this.expression();
    return second === null
      ? { keyName: null, valueName: first, collection }
      : { keyName: first, valueName: second, collection };
  }

  /** Parses up to the quote, or to the end of the text. Backslash escapes apply only within quotes. */
  template(quote: Quote): Node {
    const parts = this.#parts(quote, [], false);
    if (quote !== null) this.expect(quote);
    const [only] = parts;
    if (parts.length === 1 && only?.kind === "node" && only.isValue) return only.node;
    return joined(parts);
  }

  /** `until`: the directives that end this part of the text; parsing stops before them. */
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
        if (quote !== null) fail("unterminated string");
        if (until.length > 0) fail(`expected %{ ${until.at(-1)} }`);
        break;
      }
      if (char === quote) {
        if (until.length > 0) fail(`expected %{ ${until.at(-1)} }`);
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
        if (directive === null) return fail("expected the name of a directive");
        flush(directive[1] === "~");
        const word = directive[2] as string;
        if (until.includes(word)) break;
        this.at += directive[0].length;
        if (word !== "if" && word !== "for") return fail(`unexpected directive '${word}'`);
        const parsed = word === "if" ? this.#conditional(quote) : this.#loop(quote);
        parts.push({ kind: "node", node: parsed.node, isValue: false });
        trims = parsed.trims;
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
    if (directive === null) return fail("expected a directive");
    this.at += directive[0].length;
    return directive[1] as string;
  }

  /** Parses the end of a marker; returns whether it trims the space after it. */
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
      return code > 0x10_ff_ff ? fail(`\\${unicode[0]} is not a character`) : String.fromCodePoint(code);
    }
    const escaped = escapes[rest[0] ?? ""];
    if (escaped === undefined) fail(`\\${rest[0] ?? ""} is not a valid escape`);
    this.at += 2;
    return escaped as string;
  }
}

function joined(parts: readonly Part[]): Node {
  return (scope) =>
    textValue(parts.map((part) => (part.kind === "text" ? part.text : asText(part.node(scope)))).join(""));
}
