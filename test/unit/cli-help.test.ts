import { readFileSync } from "node:fs";
import test from "ava";
import { commandOf } from "../../cli/command.ts";
import { UsageError } from "../../lib/user-error.ts";
import { reference } from "../../cli/help/reference.ts";
import { allCommands, commandAt } from "../../cli/help/tree.ts";
import { verbs } from "../../cli/verbs.ts";
import { run } from "../../cli/run.ts";
import { processShell } from "../../cli/shell.ts";
import { shellWords } from "../../cli/values.ts";

/** The words of a muster command in a line, which may have a pipe before or after it. */
function words(line: string): readonly string[] {
  const from = line.indexOf("muster ");
  const all = shellWords(line.slice(from), "example");
  const end = all.findIndex((word) => word === "|" || word === ">");
  return (end < 0 ? all : all.slice(0, end)).map((word) => word.replace(/\)$/, "")).slice(1);
}

async function printed(...args: readonly string[]) {
  const lines: string[] = [];
  const remarks: string[] = [];
  const shell = { ...processShell(""), print: (text: string) => void lines.push(text) };
  const status = await run(args, { ...shell, remark: (text) => void remarks.push(text) });
  return { status, text: lines.join("\n"), remarks };
}

test("each command has a description, an explanation of each flag, and an example", async (t) => {
  for (const { command, name } of await allCommands(verbs)) {
    const { examples, flags, summary } = command.describe(name);
    t.regex(summary, /^[A-Z].*\.$/s, name);
    t.true(examples.length > 0, `${name} has an example in cli/help/examples.ts`);
    for (const flag of flags) {
      t.truthy(flag.help, `${name} --${flag.name} has an explanation`);
      if (flag.takesValue) t.truthy(flag.value, `${name} --${flag.name} describes its value`);
    }
  }
});

test("each line of the examples can be typed", async (t) => {
  for (const { command, name } of await allCommands(verbs)) {
    for (const { line } of command.describe(name).examples) {
      const given = words(line);
      const found = await commandAt(verbs, given);
      t.is(found?.found.name, name, line);
      t.notThrows(() => found?.found.command.check(name, given.slice(found.length)), line);
    }
  }
});

test("docs/cli.md shows the current commands", async (t) => {
  const page = readFileSync(new URL("../../docs/cli.md", import.meta.url), "utf8");
  t.is(page, await reference(), "run npm run reference");
});

test("--help and help print the same, for the whole, a noun and a command", async (t) => {
  for (const verb of [["service"], ["service", "create"], ["service", "plan"], ["service", "plan", "scale"], ["up"]]) {
    const before = await printed("help", ...verb);
    const after = await printed(...verb, "--help");
    t.is(before.status, 0);
    t.is(before.text, after.text);
    t.regex(before.text, new RegExp(`^Usage: muster ${verb.join(" ")} `));
  }
  t.regex((await printed("help")).text, /^Usage: muster \[--host SOCKET \| --context CONTEXT\] VERB/);
  t.regex((await printed("service", "help", "create")).text, /^Usage: muster service create/);
  t.like(await printed("help", "nothing"), { status: 125 });
  t.like(await printed("help", "node", "nothing"), { status: 125 });
  t.like(await printed("help", "node", "ls", "nothing"), { status: 125 });
});

test("the help of a command ends with its examples", async (t) => {
  const { text } = await printed("node", "update", "--help");
  t.regex(
    text,
    /Examples:\n {2}# move tasks away for maintenance\n {2}muster node update --availability drain web-1\n/,
  );
});

test("Docker's aliases of ls and rm work", async (t) => {
  const { text } = await printed("service", "list", "--help");
  t.regex(text, /^Usage: muster service list/);
  t.regex((await printed("stack", "up", "--help")).text, /^Usage: muster stack up/);
  t.regex((await printed("stack", "down", "--help")).text, /^Usage: muster stack down/);
  t.like(await printed("service", "down", "web"), { status: 125 });
  t.is(commandOf({}, "constructor"), undefined);
  t.like(await printed("service", "constructor"), { status: 125 });
});

test("a command line is checked without executing anything", async (t) => {
  const found = await commandAt(verbs, ["service", "rm"]);
  t.throws(() => found?.found.command.check("service rm", []), { instanceOf: UsageError });
  t.throws(() => found?.found.command.check("service rm", ["--nothing", "a"]), { instanceOf: UsageError });
  t.notThrows(() => found?.found.command.check("service rm", ["a", "b"]));
});
