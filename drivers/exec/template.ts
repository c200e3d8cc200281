/** The templates that SwarmKit's workers expand: a small part of Go's template language, and nothing that can run code. */
import { TemplateError, type Fields, type TemplateContext } from "./template-context.ts";

export type Expansion =
  | { readonly kind: "text"; readonly text: string }
  /** `reason`: a sentence without its beginning. */
  | { readonly kind: "failed"; readonly reason: string };

const placeholder = /\{\{(?:-\s)?\s*(.*?)\s*(?:\s-)?\}\}/gs;
const words = /"((?:[^"\\]|\\.)*)"|`([^`]*)`|([^\s"`]+)/g;

/** Replaces each `{{…}}`. */
export function expand(text: string, context: TemplateContext): Expansion {
  try {
    return {
      kind: "text",
      text: text.replaceAll(placeholder, (_, expression: string) => evaluate(expression, context)),
    };
  } catch (error) {
    if (error instanceof TemplateError) return { kind: "failed", reason: error.message };
    throw error;
  }
}

function evaluate(expression: string, { fields, functions }: TemplateContext): string {
  const unknown = new TemplateError(`the template {{${expression}}} is not known`);
  const terms = [...expression.matchAll(words)].map(([, quoted, raw, bare]) => ({
    literal: quoted?.replaceAll(/\\(.)/g, "$1") ?? raw ?? null,
    bare: bare ?? "",
  }));
  const valueOf = (term: (typeof terms)[number]): string => {
    const value = term.literal ?? fieldOf(term.bare, fields, unknown);
    if (typeof value !== "string") throw unknown;
    return value;
  };
  const [first, ...rest] = terms;
  if (first === undefined) throw unknown;
  if (first.bare === "index") {
    const [held, key] = rest;
    const from = held === undefined ? null : fieldOf(held.bare, fields, unknown);
    if (from === null || typeof from === "string" || key?.literal == null || rest.length !== 2) throw unknown;
    // Go's index of a key that is not there is the empty value, unlike the field.
    const value = from[key.literal] ?? "";
    if (typeof value !== "string") throw unknown;
    return value;
  }
  const call = Object.hasOwn(functions, first.bare) ? functions[first.bare] : undefined;
  if (call !== undefined) return call(...rest.map(valueOf));
  if (rest.length > 0) throw unknown;
  return valueOf(first);
}

function fieldOf(path: string, fields: Fields, unknown: TemplateError): string | Fields {
  if (!path.startsWith(".")) throw unknown;
  let value: string | Fields = fields;
  for (const name of path.slice(1).split(".")) {
    if (typeof value === "string" || !Object.hasOwn(value, name)) throw unknown;
    value = value[name] as string | Fields;
  }
  return value;
}
