// Checks every page, comment and string of the tree against the rules of test/support/prose.ts.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import {
  breachesIn,
  passagesOfPage,
  passagesOfScript,
  passagesOfSource,
  rules,
  sentencesOf,
} from "../support/prose.ts";

const top = fileURLToPath(new URL("../..", import.meta.url));
const read = (path: string): string => readFileSync(join(top, path), "utf8");
const folders = readdirSync(top, { withFileTypes: true })
  .filter((entry) => entry.isDirectory() && /^(?:[a-z]|\.ci$)/.test(entry.name) && entry.name !== "node_modules")
  .map(({ name }) => name);
const isSource = /\.(?:md|proto|ts|mjs|go)$/;
const isScript = (path: string): boolean => /\.(?:py|sh|conf)$/.test(path) || /^(?:\.ci|bin)\/[a-z-]+$/.test(path);
/** Generated code, and the samples of the rules themselves. */
const isLeftOut = (path: string): boolean => path.startsWith("proto/gen/") || path === "test/support/prose.ts";
const pages = readdirSync(top).filter((name) => name.endsWith(".md"));
const files = [...pages, ...folders.flatMap((folder) => filesOf(folder))].filter((path) => !isLeftOut(path));

function filesOf(folder: string): readonly string[] {
  return readdirSync(join(top, folder), { recursive: true, encoding: "utf8" })
    .map((file) => join(folder, file))
    .filter((path) => (isSource.test(path) || isScript(path)) && !path.includes("node_modules/"));
}

function passagesOf(path: string): ReturnType<typeof passagesOfPage> {
  const text = read(path);
  if (path.endsWith(".md")) return passagesOfPage(text);
  return isSource.test(path) ? passagesOfSource(text) : passagesOfScript(text);
}

for (const rule of rules) {
  test(`the rule "${rule.name}" finds its samples, and nothing in correct sentences`, (t) => {
    const finds = (text: string): boolean => breachesIn(text).some((breach) => breach.rule === rule);
    for (const text of rule.found) t.true(finds(text), text);
    for (const text of rule.ignored) t.false(finds(text), text);
    t.true(rule.found.length > 0 && rule.ignored.length > 0);
  });
}

test("a passage is split into sentences, without labels and list markers", (t) => {
  t.deepEqual(sentencesOf("S27: A node joins. Then it runs tasks."), ["A node joins.", "Then it runs tasks."]);
  t.deepEqual(sentencesOf("- the first item, e.g. this one"), ["the first item, e.g. this one"]);
});

test("comments and strings of a source file are read with their lines", (t) => {
  const source = [
    "// A comment",
    "// of two lines.",
    'const a = "a string of some words"; // A trailing comment.',
    "/**",
    " * A paragraph with `code`.",
    " *",
    " * S1: an invariant.",
    " */",
    "const b = /[\"'`]/.test(a) ? `a template with ${f({ c: `and another one inside` })} in it` : 'short';",
    'const c = "a part of " + "of the same message here";',
    "const d = a / b; // Not a regular expression.",
  ].join("\n");
  t.deepEqual(
    passagesOfSource(source).map(({ line, kind, text }) => `${line} ${kind} ${text}`),
    [
      "1 comment A comment of two lines.",
      "3 string a string of some words",
      "3 comment A trailing comment.",
      "5 comment A paragraph with _.",
      "7 comment S1: an invariant.",
      "9 string and another one inside",
      "9 string a template with _ in it",
      "11 comment Not a regular expression.",
    ],
  );
});

test("paragraphs, items and cells of a page are read with their lines, without headings and code", (t) => {
  const page = [
    "# What it is",
    "",
    "A paragraph",
    "of two lines.",
    "- An item",
    "- Another [link](page.md)",
    "```sh",
    "code is ignored here",
    "```",
    "| What it is | B |",
    "|---|---|",
    "| one cell | `code` |",
  ].join("\n");
  t.deepEqual(
    passagesOfPage(page).map(({ line, text }) => `${line} ${text}`),
    ["3 A paragraph of two lines.", "5 - An item", "6 - Another [link]", "12 one cell", "12 _"],
  );
});

test("comments of a script are read with their lines", (t) => {
  const script = ["#!/bin/sh", "# A comment", "# of two lines.", 'echo "# no comment"', "  # Another one."].join("\n");
  t.deepEqual(
    passagesOfScript(script).map(({ line, text }) => `${line} ${text}`),
    ["2 A comment of two lines.", "5 Another one."],
  );
});

test("pages, comments and strings follow the rules", (t) => {
  const wrong: string[] = [];
  for (const path of files) {
    for (const { line, text: passage } of passagesOf(path))
      for (const { rule, sentence } of breachesIn(passage))
        wrong.push(`${path}:${line}: ${rule.name} (write ${rule.instead}): ${sentence}`);
  }
  t.deepEqual(wrong, [], "rewrite these sentences");
  t.true(files.length > 1_000, "the files are found");
});
