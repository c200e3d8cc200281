/** A picture that is redrawn in place on the terminal's other screen, so that what was on the first one stays. */
import type { Screen, Shell } from "../shell.ts";
import { rendered, type Line } from "./texts.ts";

const enter = "\x1b[?1049h\x1b[?25l";
const leave = "\x1b[?25h\x1b[?1049l";
const home = "\x1b[H";
const clear = "\x1b[2J";
const clearLine = "\x1b[K";
const clearBelow = "\x1b[J";

export class LiveScreen {
  readonly #shell: Shell;
  readonly #size: () => Screen;
  #drawn = "";
  #last: { readonly lines: readonly Line[]; readonly size: Screen } | null = null;

  /** `size`: the terminal's present one. */
  constructor(shell: Shell, size: () => Screen) {
    this.#shell = shell;
    this.#size = size;
    this.#write(enter);
  }

  /** `picture`: at most as many lines as the terminal has; the rest is cut. Writes nothing when nothing has changed. */
  draw(picture: (size: Screen) => readonly Line[]): void {
    const size = this.#size();
    const lines = picture(size).slice(0, size.rows);
    const isResized =
      this.#last !== null && (this.#last.size.columns !== size.columns || this.#last.size.rows !== size.rows);
    const texts = lines.map((spans) => rendered(spans, { width: size.columns, colours: size.colours }));
    const drawn = texts.map((text) => `${text}${clearLine}`).join("\r\n");
    this.#last = { lines, size };
    if (drawn === this.#drawn && !isResized) return;
    this.#drawn = drawn;
    this.#write(`${isResized ? clear : ""}${home}${drawn}${clearBelow}`);
  }

  /** The last picture stays on the terminal. */
  close(): void {
    this.#write(leave);
    if (this.#last === null) return;
    const { lines, size } = this.#last;
    for (const spans of lines) this.#shell.print(rendered(spans, { width: size.columns, colours: size.colours }));
  }

  #write(text: string): void {
    void this.#shell.write(new TextEncoder().encode(text), "out");
  }
}
