import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { run } from "../../cli/run.ts";
import { processShell } from "../../cli/shell.ts";
import { tempDir } from "../fixtures/muster.ts";

const top = fileURLToPath(new URL("../..", import.meta.url));

async function printed(...args: readonly string[]): Promise<string> {
  const lines: string[] = [];
  const note = (text: string): void => void lines.push(text);
  await run(args, { ...processShell(""), print: note, remark: note });
  return lines.join("\n");
}

const manifest = JSON.parse(readFileSync(join(top, "package.json"), "utf8")) as {
  readonly version: string;
  readonly dependencies: Readonly<Record<string, string>>;
};

test.serial("version names what this command consists of and can speak", async (t) => {
  const text = await printed("version");
  t.true(text.startsWith(`muster ${manifest.version} (a checkout)\n`), text);
  t.is(await printed("--version"), text);
  t.is(await printed("-v"), text);
  const told = JSON.parse(await printed("version", "--json")) as Readonly<
    Record<string, Readonly<Record<string, string>>>
  >;
  t.is(await printed("--version", "--format", "json"), JSON.stringify(told));
  t.like(told, { version: manifest.version, build: null });
  const { components = {}, formats = {}, protocols = {} } = told;
  t.is(components["node"], process.versions.node);
  for (const name of ["nats", "protobufjs", "xstate"]) {
    const { version } = JSON.parse(readFileSync(join(top, "node_modules", name, "package.json"), "utf8")) as {
      readonly version: string;
    };
    t.is(components[name], version);
  }
  // Every row of JSON is a line of the text.
  for (const [name, value] of Object.entries({ ...components, ...protocols, ...formats }))
    t.true(text.split("\n").includes(`  ${name.padEnd(18)}${value}`), name);
});

test.serial("version names the nats-server that a manager here would run, or that there is none", async (t) => {
  const before = process.env["MUSTER_NATS_SERVER"];
  t.teardown(() => {
    if (before === undefined) delete process.env["MUSTER_NATS_SERVER"];
    else process.env["MUSTER_NATS_SERVER"] = before;
  });
  const at = (path: string) => {
    process.env["MUSTER_NATS_SERVER"] = path;
    return printed("version");
  };
  t.regex(await at("/nowhere/nats-server"), /^ {2}nats-server +not found$/m);
  const server = join(tempDir(t, "version"), "nats-server");
  writeFileSync(server, "#!/bin/sh\necho 'nats-server: v9.8.7'\n", { mode: 0o755 });
  t.regex(await at(server), /^ {2}nats-server +9\.8\.7$/m);
});

test.serial("version takes one output format, and no operand", async (t) => {
  for (const [args, message] of [
    [["--json", "--format", "table"], /--json and --format exclude each other/],
    [["--format", "xml"], /invalid argument "xml" for "--format" flag: expected table or json/],
    [["web"], /accepts no arguments/],
  ] as const)
    t.regex(await printed("version", ...args), message);
});
