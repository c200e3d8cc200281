// Settings of editors: .editorconfig agrees with the formatter, and .vscode/launch.json names existing files.
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import test from "ava";

const top = fileURLToPath(new URL("../..", import.meta.url));
const read = (path: string): string => readFileSync(`${top}${path}`, "utf8");

test(".editorconfig has the formatter's line length and defaults", (t) => {
  const { printWidth, tabWidth = 2, useTabs = false, endOfLine = "lf" } = JSON.parse(read(".oxfmtrc.json"));
  const sections = new Map<string, Map<string, string>>();
  let section = "";
  for (const line of read(".editorconfig").split("\n")) {
    section = /^\[(.*)\]$/.exec(line)?.[1] ?? section;
    const [, key, value] = /^(\w+) = (.*)$/.exec(line) ?? [];
    if (key !== undefined && value !== undefined)
      sections.set(section, (sections.get(section) ?? new Map<string, string>()).set(key, value));
  }
  const all = sections.get("*");
  t.is(sections.get("*.{ts,mjs}")?.get("max_line_length"), String(printWidth));
  t.is(all?.get("indent_size"), String(tabWidth));
  t.is(all?.get("indent_style"), useTabs ? "tab" : "space");
  t.is(all?.get("end_of_line"), endOfLine);
});

test("each debugger configuration runs an existing program with this tree's Node", (t) => {
  const { configurations } = JSON.parse(read(".vscode/launch.json")) as {
    readonly configurations: readonly {
      readonly name: string;
      readonly request: string;
      readonly program?: string;
      readonly runtimeExecutable?: string;
    }[];
  };
  const launched = configurations.filter(({ request }) => request === "launch");
  for (const { name, program, runtimeExecutable } of launched) {
    t.is(runtimeExecutable, "${workspaceFolder}/node_modules/.bin/node", name);
    for (const path of [program, runtimeExecutable])
      t.true(
        existsSync((path ?? "").replace("${workspaceFolder}/", top)),
        `${name} runs ${path}, which does not exist`,
      );
  }
  t.true(launched.length > 0);
  const page = read("CONTRIBUTING.md");
  for (const { name } of configurations) t.true(page.includes(`| ${name} |`), `CONTRIBUTING.md does not list ${name}`);
});
