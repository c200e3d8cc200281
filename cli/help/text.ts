/** A command's help: usage, summary, flags by group, and examples. */
import type { CommandDescription, FlagDescription } from "./description.ts";
import { variableOf } from "../settings/variable.ts";

/** Column of the descriptions; the few longer flags overflow. */
const columnMax = 44;

/** `-f, --filter KEY=VALUE …` */
export function flagText({ isRepeated, name, short, takesValue, value }: FlagDescription): string {
  const shown = takesValue ? ` ${value ?? "VALUE"}${isRepeated ? " …" : ""}` : "";
  return `${short === null ? "    " : `-${short}, `}--${name}${shown}`;
}

/** Flags by group; groups in the order of their first flag. */
export function flagGroups(flags: readonly FlagDescription[]): ReadonlyMap<string, readonly FlagDescription[]> {
  return Map.groupBy(flags, ({ group }) => group ?? "Options");
}

export function usageText({ name, operands }: CommandDescription): string {
  return `muster ${name} [OPTIONS]${operands === "" ? "" : ` ${operands}`}`;
}

export function helpText(description: CommandDescription): string {
  const { examples, flags, summary } = description;
  const widest = Math.max(...flags.map((flag) => flagText(flag).length)) + 4;
  const width = Math.min(columnMax, widest);
  const lines = [`Usage: ${usageText(description)}`, "", summary];
  for (const [group, members] of flagGroups(flags)) {
    lines.push("", `${group}:`);
    for (const flag of members) {
      const left = `  ${flagText(flag)}`;
      lines.push(flag.help === undefined ? left : `${left.padEnd(width - 1)} ${flag.help}`);
    }
  }
  if (description.isConfigurable)
    lines.push(
      "",
      `Options can also be set as environment variables (${variableOf("log-level")} for --log-level) and in the file of --config;`,
      "the command line wins over the environment, and the environment over the file. See docs/configuration.md.",
    );
  if (examples.length > 0) lines.push("", "Examples:");
  for (const { does, line } of examples) lines.push(`  # ${does}`, `  ${line}`);
  return `${lines.join("\n")}\n`;
}

/** Help of a noun or another group of commands. */
export function groupHelp(
  name: string,
  summary: string,
  commands: Readonly<Record<string, { readonly summary: string }>>,
): string {
  const width = Math.max(...Object.keys(commands).map((word) => word.length)) + 3;
  const lines = Object.entries(commands).map(([word, each]) => `  ${word.padEnd(width)}${each.summary}`);
  const about = `${summary.charAt(0).toUpperCase()}${summary.slice(1).replace(/\.$/, "")}.`;
  return `Usage: muster ${name} COMMAND\n\n${about}\n\nCommands:\n${lines.join("\n")}\n\nRun 'muster ${name} COMMAND --help' for more information.\n`;
}
