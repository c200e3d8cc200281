/** A template that cannot be read, or cannot be carried out on what it was given. */

export interface Position {
  /** From 1. */
  readonly line: number;
  /** From 1, in characters as JavaScript counts them. */
  readonly column: number;
}

/** Line and column of the character at `at`. */
function positionOf(text: string, at: number): Position {
  const before = text.slice(0, at);
  const lastBreak = before.lastIndexOf("\n");
  return { line: before.split("\n").length, column: at - lastBreak };
}

/** Characters of the part of a template that its error shows. */
const shownMax = 200;

/** The part of a template that could not be carried out, as Go shows it. */
export interface Failed {
  /** Where Go says that it is: of `.a.b` it names the place of `.b`. */
  readonly at: number;
  /** As written, such as `.Task.Nope` or `index .Labels 7`. */
  readonly text: string;
}

interface TemplateErrorOptions {
  readonly cause?: unknown;
  /** Absent where the template could not be read. */
  readonly failed?: Failed | undefined;
  /** The reason in Go's words, where ours says more. */
  readonly goReason?: string | undefined;
}

export class TemplateError extends Error {
  override readonly name = "TemplateError";
  readonly position: Position;
  /** What is wrong, without the place. */
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

  /** As Go's text/template says it of a template called `name`. */
  inGo(name: string): string {
    if (this.#failed === null) return `template: ${name}:${this.position.line}: ${this.#goReason}`;
    const { at, text } = this.#failed;
    const { line, column } = positionOf(this.#text, at);
    const shown = text.length > shownMax ? `${text.slice(0, shownMax)}…` : text;
    return `template: ${name}:${line}:${column - 1}: executing "${name}" at <${shown}>: ${this.#goReason}`;
  }
}

/** What Go calls the type of a value, for errors: a field of structs, which no template sees. */
export const goType = Symbol("the name of a Go type");

/** Null for what has not been given one. */
export function goTypeOf(value: unknown): string | null {
  if (typeof value === "string") return "string";
  return typeof value === "object" && value !== null && goType in value ? String(value[goType]) : null;
}
