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

export class TemplateError extends Error {
  override readonly name = "TemplateError";
  readonly position: Position;
  /** What is wrong, without the place. */
  readonly reason: string;

  constructor(text: string, at: number, reason: string, options: { readonly cause?: unknown } = {}) {
    const position = positionOf(text, at);
    super(`template:${position.line}:${position.column}: ${reason}`, options);
    this.position = position;
    this.reason = reason;
  }
}
