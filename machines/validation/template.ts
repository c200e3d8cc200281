/**
 * Checks that texts with templates (`{{.Task.Slot}}`) can be expanded, so that a service is refused at once instead of each
 * of its tasks being rejected on a node. Templates are expanded for a sample task.
 */
import { TemplateBudget } from "../../lib/template/budget.ts";
import { taskFunctions } from "../../lib/template/task-context.ts";
import { goType, parseTemplate, TemplateError } from "../../lib/template/template.ts";
import type { ContainerSpec } from "../../proto/gen/messages.ts";
import { invalid, type Refusal } from "../refusal.ts";

/** Accepts any label: labels may change without the templates. */
class AnyLabels extends Map<string, string> {
  override has(): boolean {
    return true;
  }
  override get(): string {
    return "label";
  }
}

/** With the Go types of SwarmKit's template context, which errors name. */
const sample = {
  [goType]: "*template.Context",
  Service: {
    [goType]: "struct { ID string; Name string; Labels map[string]string }",
    ID: "serviceid",
    Name: "servicename",
    Labels: new AnyLabels(),
  },
  Node: {
    [goType]: "struct { ID string; Hostname string; Platform template.Platform }",
    ID: "nodeid",
    Hostname: "nodehostname",
    Platform: { [goType]: "template.Platform", Architecture: "x86_64", OS: "linux" },
  },
  Task: {
    [goType]: "struct { ID string; Name string; Slot string }",
    ID: "taskid",
    Name: "servicename.1.taskid",
    Slot: "1",
  },
};

/**
 * Limits of expanding all templates of one spec: about 20 ms of the manager's time, no more than its longest turn elsewhere;
 * enough for 100 kB of templates, and more output than any engine accepts as an environment.
 */
const trialBudget = { steps: 100_000, output: 1_024_000 };
/** Characters of a refused template that the error quotes. */
const quotedMax = 200;
/** SwarmKit's name for templates that it checks. */
const templateName = "expansion";

interface TriedText {
  readonly text: string;
  /** The error's prefix in SwarmKit's words: `expanding hostname failed`. */
  readonly failure: () => string;
}

function quoted(text: string): string {
  return JSON.stringify(text.length > quotedMax ? `${text.slice(0, quotedMax)}…` : text);
}

/** Refuses the first template that cannot be expanded, in SwarmKit's words. All texts share one budget. */
export function checkTemplates(tried: Iterable<TriedText>): Refusal | null {
  const budget = new TemplateBudget(trialBudget);
  for (const { failure, text } of tried) {
    if (!text.includes("{{")) continue;
    try {
      parseTemplate(text, taskFunctions, { budget, missingKey: "error" }).execute(sample);
    } catch (error) {
      if (!(error instanceof TemplateError)) throw error;
      return invalid(`${failure()}: ${error.inGo(templateName)}`);
    }
  }
  return null;
}

/** Only values can be templates, not variable names. */
export function triedVariables(env: readonly string[]): readonly TriedText[] {
  return env.map((entry) => ({
    text: entry.includes("=") ? entry.slice(entry.indexOf("=") + 1) : "",
    failure: () => `expanding env failed: expanding env ${quoted(entry)}`,
  }));
}

/** A container's templated texts (environment, mounts, hostname), in SwarmKit's order. */
export function triedTexts({ env, hostname, mounts }: ContainerSpec): readonly TriedText[] {
  const ofMounts = (text: string, what: () => string): TriedText => ({
    text,
    failure: () => `expanding mounts failed: expanding ${what()}`,
  });
  const entries = (map: Readonly<Record<string, string>> | undefined, what: string): readonly TriedText[] =>
    Object.entries(map ?? {}).map(([key, text]) =>
      ofMounts(text, () => `${what}: expanding map entry ${quoted(key)}=${quoted(text)}`),
    );
  return [
    ...triedVariables(env),
    ...mounts.flatMap(({ source, target, volumeOptions }) => [
      ofMounts(source, () => `mount source ${quoted(source)}`),
      ofMounts(target, () => `mount target ${quoted(target)}`),
      ...entries(volumeOptions?.labels, "volume labels"),
      ...entries(volumeOptions?.driverConfig?.options, "volume driver config"),
    ]),
    { text: hostname, failure: () => "expanding hostname failed" },
  ];
}
