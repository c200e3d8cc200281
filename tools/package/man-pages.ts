/** Manual pages in section 1, from the tables of the commands that `--help` shows. */
import type { CommandDescription } from "../../cli/help/description.ts";
import { flagGroups, flagText, usageText } from "../../cli/help/text.ts";
import { allCommands } from "../../cli/help/tree.ts";
import { variableOf } from "../../cli/settings/variable.ts";
import { verbs } from "../../cli/verbs.ts";

/** Text for roff: no escape sequences, and no line that is a request. */
function plain(text: string): string {
  return text
    .replaceAll("\\", "\\e")
    .replaceAll("-", "\\-")
    .replaceAll(/^(?=[.'])/gm, "\\&");
}

/** An argument of a request. */
const quoted = (text: string): string => `"${plain(text).replaceAll('"', '""')}"`;

/** `date`: `2026-11-26`. */
function head(name: string, date: string, version: string): string {
  return `.TH ${quoted(name.toUpperCase())} 1 ${quoted(date)} ${quoted(`muster ${version}`)} "Muster"\n.nh\n.ad l`;
}

export function pageName(command: string): string {
  return `muster-${command.replaceAll(" ", "-")}`;
}

export function commandPage(description: CommandDescription, date: string, version: string): string {
  const { examples, flags, isConfigurable, name, summary } = description;
  const lines = [
    head(pageName(name), date, version),
    ".SH NAME",
    `${plain(pageName(name))} \\- ${plain(summary.replace(/\.$/, ""))}`,
    ".SH SYNOPSIS",
    `.B ${plain(usageText(description))}`,
    ".SH DESCRIPTION",
    plain(summary),
  ];
  for (const [group, members] of flagGroups(flags)) {
    lines.push(`.SH ${quoted(group.toUpperCase())}`);
    for (const flag of members) lines.push(".TP", `.B ${plain(flagText(flag).trim())}`, plain(flag.help ?? ""));
  }
  if (isConfigurable)
    lines.push(
      ".SH CONFIGURATION",
      plain(
        `Options can also be set as environment variables (${variableOf("log-level")} for --log-level) and in the YAML file of --config, whose keys are the options without dashes. The command line wins over the environment, and the environment over the file. SIGHUP reads the file again.`,
      ),
    );
  if (examples.length > 0) lines.push(".SH EXAMPLES");
  for (const { does, line } of examples)
    lines.push(
      ".PP",
      plain(`${does.charAt(0).toUpperCase()}${does.slice(1)}:`),
      ".PP",
      ".nf",
      `.B ${plain(line)}`,
      ".fi",
    );
  lines.push(".SH SEE ALSO", ".BR muster (1)");
  return `${lines.filter((line) => line !== "").join("\n")}\n`;
}

function overview(names: readonly string[], date: string, version: string): string {
  const lines = [
    head("muster", date, version),
    ".SH NAME",
    "muster \\- run and control clusters of containers and processes",
    ".SH SYNOPSIS",
    `.B ${plain("muster [--host SOCKET | --context CONTEXT] VERB …")}`,
    ".SH COMMANDS",
    ...Object.entries(verbs).flatMap(([name, { summary }]) => [".TP", `.B ${plain(name)}`, plain(summary)]),
    ".SH FILES",
    ".TP",
    ".I /etc/muster/manager.yaml, /etc/muster/agent.yaml",
    plain("Settings of muster-manager.service and muster-agent.service."),
    ".TP",
    ".I /etc/muster/credentials/manager, /etc/muster/credentials/agent",
    plain("Their secrets: token, nats-password, nats-key."),
    ".TP",
    ".I /var/lib/muster",
    "Their data.",
    ".SH SEE ALSO",
    `${names.map((name) => `.BR ${plain(pageName(name))} (1)`).join(" ,\n")}`,
  ];
  return `${lines.join("\n")}\n`;
}

/** Pages by file name. `date`: of the commit, in ISO 8601. */
export async function manPages(date: string, version: string): Promise<ReadonlyMap<string, string>> {
  const day = date.slice(0, 10);
  const commands = await allCommands(verbs);
  const pages = new Map([
    [
      "muster.1",
      overview(
        commands.map(({ name }) => name),
        day,
        version,
      ),
    ],
  ]);
  for (const { command, name } of commands)
    pages.set(`${pageName(name)}.1`, commandPage(command.describe(name), day, version));
  return pages;
}
