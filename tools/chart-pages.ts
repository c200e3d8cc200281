/** The pages of docs/machines/, by file name. */
import { dirname } from "node:path";
import { filled, waitsOf } from "../machines/wait-meta.ts";
import { allCharts } from "../cli/charts.ts";
import { handlersOf, picturesOf } from "../cli/chart-mermaid.ts";

export async function chartPages(): Promise<ReadonlyMap<string, string>> {
  const pages = new Map<string, string>();
  const index = [
    "# Statecharts",
    "",
    "Written by `npm run charts` from `machines/`, folder by folder. `muster charts` exports them in [other formats](../inspector.md#charts-in-other-tools).",
  ];
  let folder = "";
  for (const { name, file, summary, machine } of await allCharts()) {
    if (dirname(file) !== folder) {
      folder = dirname(file);
      index.push("", `## ${folder === "." ? "of all" : folder}`, "");
    }
    index.push(`- [${name}](${name}.md): ${summary}`);
    const pictures = picturesOf(machine).map(
      ({ of, mermaid }) => `${of === "" ? "" : `## ${of}\n\n`}\`\`\`mermaid\n${mermaid}\n\`\`\``,
    );
    const handlers = handlersOf(machine).map(
      ({ event, to, within }) => `| ${within.length === 0 ? "any" : within.join(", ")} | \`${event}\` | ${to} |`,
    );
    const always =
      handlers.length === 0 ? "" : ["| in | event | leads to |", "|---|---|---|", ...handlers, "", ""].join("\n");
    const waits = [...waitsOf(machine)].map(([state, { waitingFor, wokenBy }]) => {
      const wakers = Object.entries(wokenBy).map(([key, phrase]) => `${filled(phrase)} (\`${key}\`)`);
      return `| ${state} | ${filled(waitingFor)} | ${wakers.join("; ")} |`;
    });
    const table = ["| state | waits for | woken by |", "|---|---|---|", ...waits].join("\n");
    pages.set(
      `${name}.md`,
      `# ${name}\n\n${summary} (\`machines/${file}\`)\n\n${pictures.join("\n\n")}\n\n${always}${table}\n`,
    );
  }
  pages.set("README.md", `${index.join("\n")}\n`);
  return pages;
}
