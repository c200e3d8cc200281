/**
 * Whether a text with templates (`{{.Task.Slot}}`) can be expanded: a service is refused at once rather than each of
 * its tasks rejected on some node. It is tried on a task that nobody has.
 */
import { TemplateBudget } from "../../runtime/template/budget.ts";
import { taskFunctions } from "../../runtime/template/task-context.ts";
import { parseTemplate, TemplateError } from "../../runtime/template/template.ts";
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

/**
 * What trying all templates of one spec may cost the manager: about 20 ms, no more than its longest turn elsewhere. 100 kB of
 * templates fit in; more output than any engine takes as an environment.
 */
const trialBudget = { steps: 100_000, output: 1_024_000 };
/** Characters of a refused template that its error quotes. */
const quotedMax = 200;

/** Refuses the first text that is a template and cannot be expanded. All texts share one budget. */
export function checkTemplates(texts: Iterable<string>): Refusal | null {
  const budget = new TemplateBudget(trialBudget);
  for (const text of texts) {
    if (!text.includes("{{")) continue;
    try {
      parseTemplate(text, taskFunctions, { budget, missingKey: "error" }).execute(sample);
    } catch (error) {
      if (!(error instanceof TemplateError)) throw error;
      const quoted = text.length > quotedMax ? `${text.slice(0, quotedMax)}…` : text;
      return invalid(`expanding template "${quoted}" failed: ${error.message}`);
    }
  }
  return null;
}
