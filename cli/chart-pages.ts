/** The pages of docs/machines/, by file name. */
import { allCharts } from "./charts.ts";
import { toMermaid } from "./chart-mermaid.ts";

export async function chartPages(): Promise<ReadonlyMap<string, string>> {
  const pages = new Map<string, string>();
  const index = ["# Statecharts", "", "Written by `npm run charts` from `machines/`.", ""];
  for (const { name, summary, machine } of await allCharts()) {
    index.push(`- [${name}](${name}.md): ${summary}`);
    pages.set(`${name}.md`, `# ${name}\n\n${summary}\n\n\`\`\`mermaid\n${toMermaid(machine).trim()}\n\`\`\`\n`);
  }
  pages.set("README.md", `${index.join("\n")}\n`);
  return pages;
}
