/**
 * Variables in a Compose file: `$NAME`, `${NAME}`, with a default (`:-`, `-`), an error (`:?`, `?`) or a replacement (`:+`,
 * `+`), each of which may contain variables; `$$` is a dollar sign. With the colon, an empty variable counts as unset.
 */
import { mistake, under, withEntries, type Entry, type Node } from "./located.ts";

export interface Variables {
  /** Undefined: unset. */
  get(name: string): string | undefined;
  /** Called for each unset variable without a default. */
  missing?(name: string): void;
}

/** An invalid text; the caller adds its place. */
export class InterpolationError extends Error {
  override readonly name = "InterpolationError";
}

const nameStart = /[A-Za-z_]/;
const nameRest = /^[A-Za-z_][A-Za-z0-9_]*/;

/** Position of the brace that closes the one before `from`; handles nested `${`. */
function closingBrace(text: string, from: number): number {
  let depth = 1;
  for (let at = from; at < text.length; at += 1) {
    if (text.startsWith("$$", at)) at += 1;
    else if (text.startsWith("${", at)) {
      depth += 1;
      at += 1;
    } else if (text.charAt(at) === "}") {
      depth -= 1;
      if (depth === 0) return at;
    }
  }
  throw new InterpolationError(`has a '\${' without '}': write $$ for a dollar sign`);
}

function braced(inner: string, variables: Variables): string {
  const name = nameRest.exec(inner)?.[0] ?? "";
  const rest = inner.slice(name.length);
  const match = /^(:?)([-?+])(.*)$/s.exec(rest);
  if (name === "" || (rest !== "" && match === null)) {
    throw new InterpolationError(`has an invalid variable '\${${inner}}': write $$ for a dollar sign`);
  }
  const value = variables.get(name);
  if (match === null) return valueOrBlank(name, value, variables);
  const [, colon, operator, word = ""] = match;
  const isSet = value !== undefined && (colon === "" || value !== "");
  switch (operator) {
    case "-":
      return isSet ? value : interpolated(word, variables);
    case "+":
      return isSet ? interpolated(word, variables) : "";
    default:
      if (isSet) return value;
      throw new InterpolationError(
        `requires the variable ${name}${word === "" ? "" : `: ${interpolated(word, variables)}`}`,
      );
  }
}

function valueOrBlank(name: string, value: string | undefined, variables: Variables): string {
  if (value === undefined) variables.missing?.(name);
  return value ?? "";
}

/** Throws InterpolationError. */
export function interpolated(text: string, variables: Variables): string {
  let out = "";
  let at = 0;
  for (;;) {
    const dollar = text.indexOf("$", at);
    if (dollar < 0) return out + text.slice(at);
    out += text.slice(at, dollar);
    const next = text.charAt(dollar + 1);
    if (next === "$") {
      out += "$";
      at = dollar + 2;
    } else if (next === "{") {
      const end = closingBrace(text, dollar + 2);
      out += braced(text.slice(dollar + 2, end), variables);
      at = end + 1;
    } else if (nameStart.test(next)) {
      const name = nameRest.exec(text.slice(dollar + 1))?.[0] ?? "";
      out += valueOrBlank(name, variables.get(name), variables);
      at = dollar + 1 + name.length;
    } else throw new InterpolationError("has a '$' without a variable name: write $$ for a dollar sign");
  }
}

/** Interpolates every string of the tree, but not keys. Throws UserError with file, line and key. */
export function interpolatedTree(node: Node, variables: Variables, path = ""): Node {
  if (node.kind === "scalar") {
    if (typeof node.value !== "string" || !node.value.includes("$")) return node;
    try {
      return { ...node, value: interpolated(node.value, variables) };
    } catch (error) {
      if (error instanceof InterpolationError) throw mistake(node.at, path, error.message);
      throw error;
    }
  }
  if (node.kind === "list") {
    return { ...node, items: node.items.map((item, at) => interpolatedTree(item, variables, under(path, at))) };
  }
  const entries = new Map<string, Entry>();
  for (const [key, { at, value }] of node.entries) {
    entries.set(key, { at, value: interpolatedTree(value, variables, under(path, key)) });
  }
  return withEntries(node, entries);
}
