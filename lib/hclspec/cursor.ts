/** A position in an HCL text, with the operations of a recursive-descent parser. */

export class ExpressionError extends Error {
  override readonly name = "ExpressionError";
}

export function fail(message: string): never {
  throw new ExpressionError(message);
}

/** Characters of space and comments that are skipped at once. */
const skippedMax = 4_096;

export class Cursor {
  protected readonly text: string;
  protected at = 0;
  /** End of the last skipped space that contained a newline. */
  #newlineAt = -1;

  constructor(text: string) {
    this.text = text;
  }

  /** Throws ExpressionError if anything but space is left. */
  end(): void {
    this.space();
    if (this.at < this.text.length) fail(`unexpected ${JSON.stringify(this.text.slice(this.at, this.at + 12))}`);
  }

  /** Skips space and comments. */
  protected space(): void {
    for (;;) {
      const found = /^(?:\s+|#[^\n]*|\/\/[^\n]*|\/\*[\s\S]*?\*\/)/.exec(this.text.slice(this.at, this.at + skippedMax));
      if (found === null) return;
      const hadNewline = this.#newlineAt === this.at || found[0].includes("\n");
      this.at += found[0].length;
      if (hadNewline) this.#newlineAt = this.at;
    }
  }

  /** Whether the next token is on another line than the previous one. */
  protected isOnNewLine(): boolean {
    this.space();
    return this.#newlineAt === this.at;
  }

  protected peek(token: string): boolean {
    this.space();
    return this.text.startsWith(token, this.at);
  }

  protected accept(token: string): boolean {
    if (!this.peek(token)) return false;
    this.at += token.length;
    return true;
  }

  protected expect(token: string): void {
    if (!this.accept(token)) fail(`expected ${JSON.stringify(token)}`);
  }

  /** The next token if it is a name, otherwise null. */
  protected name(): string | null {
    this.space();
    const found = /^[\p{ID_Start}_][\p{ID_Continue}-]*/u.exec(this.text.slice(this.at))?.[0];
    this.at += found?.length ?? 0;
    return found ?? null;
  }

  protected peekWord(word: string): boolean {
    return this.peek(word) && !/^[\w-]/.test(this.text.slice(this.at + word.length));
  }

  protected acceptWord(word: string): boolean {
    if (!this.peekWord(word)) return false;
    this.at += word.length;
    return true;
  }
}
