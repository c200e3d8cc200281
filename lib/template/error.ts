/** Errors of parsing or executing a template. */

interface Position {
  /** From 1. */
  readonly line: number;
  /** From 1, in UTF-16 code units. */
  readonly column: number;
}

/** Line and column of the character at `at`. */
function positionOf(text: string, at: number): Position {
  const before = text.slice(0, at);
  const lastBreak = before.lastIndexOf("\n");
  return { line: before.split("\n").length, column: at - lastBreak };
}

/** Maximum length of the failed part in an error. */
const shownMax = 200;

/** The part of a template that failed, as Go shows it. */
export interface Failed {
  /** The position that Go reports: for `.a.b`, that of `.b`. */
  readonly at: number;
  /** As written, such as `.Task.Nope` or `index .Labels 7`. */
  readonly text: string;
}

interface TemplateErrorOptions {
  readonly cause?: unknown;
  /** Absent if the template could not be parsed. */
  readonly failed?: Failed | undefined;
  /** The reason in Go's words, if ours says more. */
  readonly goReason?: string | undefined;
}

export class TemplateError extends Error {
  override readonly name = "TemplateError";
  readonly position: Position;
  /** The reason, without the position. */
  readonly reason: string;
  readonly #text: string;
  readonly #failed: Failed | null;
  readonly #goReason: string;

  constructor(text: string, at: number, reason: string, { cause, failed, goReason }: TemplateErrorOptions = {}) {
    const position = positionOf(text, at);
    super(`template:${position.line}:${position.column}: ${reason}`, cause === undefined ? {} : { cause });
    this.position = position;
    this.reason = reason;
    this.#text = text;
    this.#failed = failed ?? null;
    this.#goReason = goReason ?? reason;
  }

  /** The error in the format of Go's text/template, for a template called `name`. */
  inGo(name: string): string {
    if (this.#failed === null) return `template: ${name}:${this.position.line}: ${this.#goReason}`;
    const { at, text } = this.#failed;
    const { line, column } = positionOf(this.#text, at);
    const shown = text.length > shownMax ? `${text.slice(0, shownMax)}…` : text;
    return `template: ${name}:${line}:${column - 1}: executing "${name}" at <${shown}>: ${this.#goReason}`;
  }
}

/** Go's name of the value's type, for errors: a hidden field of structs. */
export const goType = Symbol("the name of a Go type");

/** Null if it has none. */
export function goTypeOf(value: unknown): string | null {
  if (typeof value === "string") return "string";
  return typeof value === "object" && value !== null && goType in value ? String(value[goType]) : null;
}
