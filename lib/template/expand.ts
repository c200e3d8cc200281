/** Expands templates about a task. */
import { parseTemplate, TemplateError } from "./template.ts";
import type { TemplateContext } from "./task-context.ts";

type Expansion =
  | { readonly kind: "text"; readonly text: string }
  /** `reason`: a sentence, with line and column of the error. It contains nothing that functions returned. */
  | { readonly kind: "failed"; readonly reason: string };

/** A label that the service lacks is an error, as in SwarmKit, unless it is read with `index`. */
export function expand(text: string, { budget, data, functions }: TemplateContext): Expansion {
  try {
    return { kind: "text", text: parseTemplate(text, functions, { budget, missingKey: "error" }).execute(data) };
  } catch (error) {
    if (error instanceof TemplateError) return { kind: "failed", reason: error.message };
    throw error;
  }
}
