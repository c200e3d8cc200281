/** `--format`: a table, JSON, or a Go template with Docker's names, alone or for a table's columns. */
import { dockerFunctions, parseTemplate, TemplateError, type Template } from "../lib/template/template.ts";
import { UsageError, UserError } from "../lib/user-error.ts";

export interface TemplateFormat {
  readonly template: Template;
  /** The template uses lower-case names, which are SwarmKit's fields. */
  readonly usesWire: boolean;
}

export type Format =
  | { readonly kind: "table"; readonly template: TemplateFormat | null }
  | { readonly kind: "json" }
  /** SwarmKit's own fields. */
  | { readonly kind: "wire" }
  | { readonly kind: "template"; readonly template: TemplateFormat };

/** Replaces `\n` and `\t`, as typed in single quotes. */
function unescaped(text: string): string {
  return text.replaceAll(String.raw`\t`, "\t").replaceAll(String.raw`\n`, "\n");
}

function read(text: string): TemplateFormat {
  try {
    return { template: parseTemplate(text, dockerFunctions), usesWire: /\.[a-z]/.test(text) };
  } catch (error) {
    if (error instanceof TemplateError) throw new UsageError(`--format: ${error.message}`);
    throw error;
  }
}

/** Throws UsageError for an invalid template. */
export function readFormat(text: string | undefined): Format {
  const given = text?.trim() ?? "";
  if (given === "" || given === "table") return { kind: "table", template: null };
  if (given === "json") return { kind: "json" };
  if (given === "wire") return { kind: "wire" };
  if (given.startsWith("table ")) {
    return { kind: "table", template: read(unescaped(given.slice("table ".length).trim())) };
  }
  // A word without braces is most likely a typo, not a text to print for each object.
  if (/^[\w-]+$/.test(given)) {
    throw new UsageError(
      `invalid argument "${given}" for "--format" flag: expected 'table', 'json', 'wire' or a template such as '{{.ID}}'`,
    );
  }
  return { kind: "template", template: read(unescaped(given)) };
}

/** Throws UserError when the object lacks a field of the template. */
export function filled({ template }: TemplateFormat, data: unknown): string {
  try {
    return template.execute(data);
  } catch (error) {
    if (error instanceof TemplateError) throw new UserError(`--format: ${error.message}`, { cause: error });
    throw error;
  }
}
