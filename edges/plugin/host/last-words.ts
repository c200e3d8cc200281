/**
 * The standard error of a plugin that did not start, shortened for the error message. The last line is seldom the reason: Node
 * ends with its version, Go with goroutine stacks, and Python starts with its stack.
 *
 * W1: memory is bounded: one error line and the newest `linesMax` lines, each of at most `lineMax` characters.
 */
import { parseLogLine } from "./log-line.ts";

/** A stack trace of Node has ten frames and some ten lines around them. */
const linesMax = 24;
/** Characters per line: enough for a module's path and a sentence. */
const lineMax = 512;
/** Characters of the whole text: it goes into a log line and a table cell. */
const textMax = 2_000;

/** `Error: …`, `SyntaxError [CODE]: …`, `some.module.ValueError: …`, unindented as Node and Python write them. */
const exception = /^(?:Uncaught )?[\w.]*(?:Error|Exception)(?: \[\w+\])?(?::|$)/;
/** Lines without information: Node's version, and the marks below a quoted line. */
const noise = /^(?:Node\.js v[\d.]+|[\s^~]+)$/;

function isError(line: string): boolean {
  const { isPanic, level } = parseLogLine(line);
  return isPanic || level === "error" || exception.test(line);
}

function shortened(text: string, max: number): string {
  return text.length > max ? `${text.slice(0, max)}…` : text;
}

export class LastWords {
  /** The first line that names an error: later ones are often only consequences. */
  #error: string | null = null;
  readonly #lines: string[] = [];

  /** `line`: without its line end. */
  push(line: string): void {
    if (line.trim() === "" || noise.test(line)) return;
    const kept = shortened(line, lineMax);
    if (this.#error === null && isError(line)) this.#error = kept;
    this.#lines.push(kept);
    if (this.#lines.length > linesMax) this.#lines.shift(); // W1
  }

  /** In one line: the error, then all other kept lines in order; empty if nothing was written. */
  text(): string {
    const error = this.#error ?? this.#lines.at(-1);
    if (error === undefined) return "";
    const at = this.#lines.indexOf(error);
    const others = this.#lines.filter((_, index) => index !== at).map((line) => line.trim());
    return shortened([parseLogLine(error).message, ...others].join(" | "), textMax);
  }
}
