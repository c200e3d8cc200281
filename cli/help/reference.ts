/** The page docs/cli.md: every command with its flags and examples, from the same tables as the help. */
import type { CommandDescription } from "./description.ts";
import { verbs } from "../verbs.ts";
import { flagGroups, flagText, usageText } from "./text.ts";
import { allCommands } from "./tree.ts";

/** Flags of every command, described once. */
const common = new Set(["host", "control", "context", "help"]);

const introduction = `# Commands

Written by \`npm run reference\` from the tables that \`--help\` shows.

Every command accepts \`-H, --host SOCKET\` (\`--control SOCKET\` where \`--host\` has another meaning) or
\`--context CONTEXT\` (see \`muster context\`) to choose the manager, and \`-h, --help\`, which \`muster help VERB…\` prints, too.
\`list\` is an alias of \`ls\`, and \`remove\` of \`rm\`.

**Exit status**: 0; 1 when something could not be done, with a sentence on standard error for each that failed; 125 for a
command line that cannot be understood.

## \`--format\`

| value | listings | \`inspect\` |
|---|---|---|
| none, \`table\` | a table; cut to the terminal's width, whole when piped or with \`--no-trunc\` | an indented array |
| \`json\` | one object per line: Docker's names, and SwarmKit's fields in lower case | the array on one line |
| \`wire\` | SwarmKit's own fields, one object per line | the same |
| \`'{{.Name}}\\t{{.ID}}'\` | a [Go template](https://pkg.go.dev/text/template) for each row | for each object |
| \`'table {{.Name}}\\t{{.ID}}'\` | a table of these columns | |

The names are those of \`docker … --format\`: \`{{.Spec.Name}}\`, \`{{.Status.State}}\`, \`{{index .Spec.Labels "a.b"}}\`. Names
in lower case are SwarmKit's: \`{{.spec.annotations.name}}\`. Functions are Go's (\`and or not len index slice print printf
println html js urlquery eq ne lt le gt ge\`) and Docker's (\`json join lower upper title split pad truncate\`). Blocks are \`if\`,
\`with\` and \`range\` with \`else\`, \`break\` and \`continue\`; variables, comments and \`{{-\` are supported; \`define\`, \`template\` and
\`block\` are not. Times are RFC 3339 strings (\`2026-01-31T08:00:00Z\`), where Docker prints Go's format.

## Completion

\`source <(muster completion bash)\`, \`source <(muster completion zsh)\` or \`muster completion fish | source\`. Names of objects
are asked of the manager; when it does not answer within 0.7 s there are none.
`;

function section(description: CommandDescription): string {
  const { examples, flags, name, summary } = description;
  const lines = [`### muster ${name}`, "", summary, "", "```", usageText(description), "```"];
  const own = flags.filter((flag) => !common.has(flag.name));
  for (const [group, members] of flagGroups(own)) {
    lines.push("", `| ${group} | |`, "|---|---|");
    for (const flag of members) {
      const text = `${flag.help ?? ""}`.replaceAll("|", "\\|");
      lines.push(`| \`${flagText(flag).trim().replaceAll("|", "\\|")}\` | ${text} |`);
    }
  }
  if (examples.length > 0) lines.push("", "```sh", ...examples.flatMap(({ does, line }) => [`# ${does}`, line]), "```");
  return lines.join("\n");
}

export async function reference(): Promise<string> {
  const byVerb = Map.groupBy(await allCommands(verbs), ({ name }) => name.split(" ")[0] ?? "");
  const parts = [introduction.trimEnd()];
  for (const [verb, commands] of byVerb) {
    const about = verbs[verb]?.summary ?? "";
    parts.push(`## ${verb}`, `${about.charAt(0).toUpperCase()}${about.slice(1)}.`);
    for (const { command, name } of commands) parts.push(section(command.describe(name)));
  }
  return `${parts.join("\n\n")}\n`;
}
