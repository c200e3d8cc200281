/** The pages of docs/machines/, by file name. */
import { dirname } from "node:path";
import { allCharts } from "../cli/charts.ts";
import { toMermaid } from "../cli/chart-mermaid.ts";

export async function chartPages(): Promise<ReadonlyMap<string, string>> {
  const pages = new Map<string, string>();
  const index = ["# Statecharts", "", "Written by `npm run charts` from `machines/`, folder by folder."];
  let folder = "";
  for (const { name, file, summary, machine } of await allCharts()) {
    if (dirname(file) !== folder) {
      folder = dirname(file);
      index.push("", `## ${folder === "." ? "of all" : folder}`, "");
    }
    index.push(`- [${name}](${name}.md): ${summary}`);
    pages.set(
      `${name}.md`,
      `# ${name}\n\n${summary} (\`machines/${file}\`)\n\n\`\`\`mermaid\n${toMermaid(machine).trim()}\n\`\`\`\n`,
    );
  }
  pages.set("README.md", `${index.join("\n")}\n`);
  return pages;
}
