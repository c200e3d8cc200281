/**
 * Whether a text with templates (`{{.Task.Slot}}`) can be expanded: a service is refused at once rather than each of
 * its tasks rejected on some node. It is tried on a task that nobody has.
 */
import { parseTemplate, TemplateError, type TemplateFunctions } from "../../runtime/template/template.ts";
import { invalid, type Refusal } from "../refusal.ts";

/** Which labels a service has is no matter of its texts: they may change without them. */
class AnyLabels extends Map<string, string> {
  override has(): boolean {
    return true;
  }
  override get(): string {
    return "label";
  }
}

const sample = {
  Service: { ID: "service", Name: "service", Labels: new AnyLabels() },
  Node: { ID: "node", Hostname: "node", Platform: { Architecture: "x86_64", OS: "linux" } },
  Task: { ID: "task", Name: "service.1.task", Slot: "1" },
};

/** SwarmKit's one function, beside Go's own. */
const functions: TemplateFunctions = {
  join: (separator, ...texts) => texts.map(String).join(String(separator)),
};

export function checkTemplate(text: string): Refusal | null {
  if (!text.includes("{{")) return null;
  try {
    parseTemplate(text, functions, { missingKey: "error" }).execute(sample);
    return null;
  } catch (error) {
    if (error instanceof TemplateError) return invalid(`expanding template "${text}" failed: ${error.message}`);
    throw error;
  }
}
