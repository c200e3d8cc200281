/**
 * Whether a text with templates (`{{.Task.Slot}}`) can be expanded: a service is refused at once rather than each of
 * its tasks rejected on some node. It is tried on a task that nobody has.
 */
import { TemplateBudget } from "../../runtime/template/budget.ts";
import { taskFunctions } from "../../runtime/template/task-context.ts";
import { goType, parseTemplate, TemplateError } from "../../runtime/template/template.ts";
import type { ContainerSpec } from "../../proto/gen/messages.ts";
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

/** With the types that SwarmKit's templates are given, as errors name them. */
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
 * What trying all templates of one spec may cost the manager: about 20 ms, no more than its longest turn elsewhere. 100 kB of
 * templates fit in; more output than any engine takes as an environment.
 */
const trialBudget = { steps: 100_000, output: 1_024_000 };
/** Characters of a refused template that its error quotes. */
const quotedMax = 200;
/** What SwarmKit calls a template that it tries. */
const templateName = "expansion";

export interface TriedText {
  readonly text: string;
  /** What stands before the error, as SwarmKit says it: `expanding hostname failed`. */
  readonly failure: () => string;
}

function quoted(text: string): string {
  return JSON.stringify(text.length > quotedMax ? `${text.slice(0, quotedMax)}…` : text);
}

/** Refuses the first text that is a template and cannot be expanded, in SwarmKit's words. All texts share one budget. */
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

/** Only values can be templates, not the names before them. */
export function triedVariables(env: readonly string[]): readonly TriedText[] {
  return env.map((entry) => ({
    text: entry.includes("=") ? entry.slice(entry.indexOf("=") + 1) : "",
    failure: () => `expanding env failed: expanding env ${quoted(entry)}`,
  }));
}

/** Of a container: its environment, its mounts and its hostname, in SwarmKit's order. */
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
