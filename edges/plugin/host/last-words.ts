/**
 * What a plugin that did not start wrote to its standard error, for whoever has to say why. Its last line is seldom the
 * reason: Node ends with its version, Go with the frames of goroutines, Python begins with them.
 *
 * W1: what is kept is bounded: one error line and the newest `linesMax` lines, each of `lineMax` characters.
 */
import { parseLogLine } from "./log-line.ts";

/** A trace of Node has ten frames and some ten lines around them. */
const linesMax = 24;
/** Characters of a line; a module's path and a sentence fit. */
const lineMax = 512;
/** Characters of the whole text: a line of a log and a cell of a table, not a document. */
const textMax = 2_000;

/** `Error: …`, `SyntaxError [CODE]: …`, `some.module.ValueError: …`, unindented as Node and Python write them. */
const exception = /^(?:Uncaught )?[\w.]*(?:Error|Exception)(?: \[\w+\])?(?::|$)/;
/** Without meaning for a reader: Node's version, and the marks below a quoted line. */
const noise = /^(?:Node\.js v[\d.]+|[\s^~]+)$/;

function isError(line: string): boolean {
  const { isPanic, level } = parseLogLine(line);
  return isPanic || level === "error" || exception.test(line);
}

function shortened(text: string, max: number): string {
  return text.length > max ? `${text.slice(0, max)}…` : text;
}

export class LastWords {
  /** The first line that names an error: what follows is often only its consequence. */
  #error: string | null = null;
  readonly #lines: string[] = [];

  /** `line`: without its end. */
  push(line: string): void {
    if (line.trim() === "" || noise.test(line)) return;
    const kept = shortened(line, lineMax);
    if (this.#error === null && isError(line)) this.#error = kept;
    this.#lines.push(kept);
    if (this.#lines.length > linesMax) this.#lines.shift(); // W1
  }

  /** One line: the error, then everything else that is kept, in its order; empty when nothing was written. */
  text(): string {
    const error = this.#error ?? this.#lines.at(-1);
    if (error === undefined) return "";
    const at = this.#lines.indexOf(error);
    const others = this.#lines.filter((_, index) => index !== at).map((line) => line.trim());
    return shortened([parseLogLine(error).message, ...others].join(" | "), textMax);
  }
}
