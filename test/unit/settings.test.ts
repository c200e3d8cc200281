// Settings of long-running processes: by flag, environment, credential and file, from one table of flags.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { allCommands, commandAt } from "../../cli/help/tree.ts";
import { run } from "../../cli/run.ts";
import { processNames } from "../../cli/settings/check.ts";
import { ProcessSettings } from "../../cli/settings/process-settings.ts";
import { processShell } from "../../cli/shell.ts";
import { verbs } from "../../cli/verbs.ts";
import { withSettingsTable } from "../../tools/settings-table.ts";

function folder(t: ExecutionContext): string {
  const made = mkdtempSync(join(tmpdir(), "muster-settings-"));
  t.teardown(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

function fileOf(t: ExecutionContext, text: string, name = "muster.yaml"): string {
  const path = join(folder(t), name);
  writeFileSync(path, text);
  return path;
}

const flagsOf = async (name: string) => (await commandAt(verbs, [name]))?.found.command.describe(name).flags ?? [];

async function values(name: string, given: object, environment: Readonly<Record<string, string>> = {}) {
  return (await ProcessSettings.open(await flagsOf(name), given as Record<string, unknown>, environment)).values();
}

test("a flag wins over the environment, the environment over the file", async (t) => {
  const config = fileOf(t, "listen: 127.0.0.1:1\nadvertise: 127.0.0.2\nlog-level: warn\n");
  const environment = { MUSTER_LISTEN: "127.0.0.1:2", MUSTER_ADVERTISE: "127.0.0.3", MUSTER_METRICS: "" };
  t.like(await values("manager", { config, listen: "127.0.0.1:3" }, environment), {
    listen: "127.0.0.1:3",
    advertise: "127.0.0.3",
    "log-level": "warn",
    metrics: undefined,
  });
  t.like(await values("manager", {}, { MUSTER_CONFIG: config }), { listen: "127.0.0.1:1" });
});

test("lists, mappings and truth values have a form in the file and in the environment", async (t) => {
  const config = fileOf(
    t,
    [
      "label: { zone: eu, disk: ssd }",
      "node-generic-resource: { ssd: 3, gpu: [one, two] }",
      "driver-config: { exec: { isolation: none }, other: '@/etc/other.json' }",
      "plugin-dir: /opt/plugins",
      "allow-root: true",
    ].join("\n"),
  );
  t.like(await values("agent", { config }), {
    label: ["zone=eu", "disk=ssd"],
    "node-generic-resource": ["ssd=3", "gpu=one", "gpu=two"],
    "driver-config": ['exec={"isolation":"none"}', "other=@/etc/other.json"],
    "plugin-dir": ["/opt/plugins"],
    "allow-root": true,
  });
  t.like(await values("agent", {}, { MUSTER_LABEL: "zone=eu\ndisk=a,b\n", MUSTER_ALLOW_ROOT: "false" }), {
    label: ["zone=eu", "disk=a,b"],
    "allow-root": false,
  });
});

test("a credential is used only with the flag that needs it, and a more specific token replaces another", async (t) => {
  const dir = folder(t);
  writeFileSync(join(dir, "muster_token"), "SWMTKN-1-x\n");
  const credentials = { CREDENTIALS_DIRECTORY: dir };
  t.is((await values("manager", {}, credentials))["token-file"], undefined);
  t.is((await values("manager", { join: "a:1" }, credentials))["token-file"], join(dir, "muster_token"));
  const config = fileOf(t, "token-file: /etc/token\njoin: a:1\n");
  t.is((await values("agent", { config }, credentials))["token-file"], join(dir, "muster_token"));
  const given = await values("agent", { config, token: "SWMTKN-1-y" }, credentials);
  t.deepEqual([given["token"], given["token-file"]], ["SWMTKN-1-y", undefined]);
});

async function muster(...args: readonly string[]) {
  const [lines, remarks]: [string[], string[]] = [[], []];
  const shell = {
    ...processShell(),
    print: (text: string) => void lines.push(text),
    remark: (text: string) => void remarks.push(text),
  };
  const status = await run(args, shell);
  return { status, said: [...lines, ...remarks].join("\n") };
}

test("config check names file, line, column and key, and suggests the key that was meant", async (t) => {
  const check = async (text: string, ...args: readonly string[]) => {
    const { said, status } = await muster("config", "check", ...args, fileOf(t, text));
    return `${status} ${said.replace(/^muster: /, "").replaceAll(/\/\S*\/muster\.yaml/g, "FILE")}`;
  };
  t.is(
    await check("data-dir: /x\nlisten: 0.0.0.0\n"),
    "0 FILE: valid for 'muster manager', 'muster up', 'muster start'",
  );
  t.is(await check(""), "0 FILE: valid for 'muster up', 'muster start'");
  t.is(
    await check("data-dir: /x\nlog-levle: debug\n"),
    "1 FILE:2:1: log-levle is not a setting: did you mean 'log-level'? see docs/configuration.md",
  );
  t.is(
    await check("log_level: debug"),
    "1 FILE:1:1: log_level is not a setting: did you mean 'log-level'? see docs/configuration.md",
  );
  t.is(
    await check("join: a:1\nlabel: []\nlog-level: loud", "--process", "agent"),
    "125 --data-dir is required: the agent keeps its identity and tasks there",
  );
  t.is(
    await check("data-dir: /x\n\nlog-level: loud", "--process", "agent"),
    '125 FILE:3:1: log-level: invalid argument "loud" for "--log-level" flag: expected one of trace, debug, info, warn, error, fatal, silent',
  );
  t.is(
    await check("data-dir: /x\nlisten: '0.0.0.0:0'", "--process", "manager"),
    '1 FILE:2:1: listen: --listen: invalid address "0.0.0.0:0": expected ADDR:PORT, such as 192.0.2.1:2377',
  );
  t.is(await check("data-dir: [a, b]"), "1 FILE:1:11: data-dir must be a single value");
  t.is(await check("listen:\n"), "1 FILE:1:8: listen has no value: remove the key to use the default");
  t.is(await check("accept-log-loss: maybe"), "1 FILE:1:18: accept-log-loss must be true or false");
  t.is(await check("nats: {a: b}"), "1 FILE:1:7: nats must be a list, or a single value");
  t.is(
    await check("fresh: true", "--process", "up"),
    "1 FILE:1:1: fresh can only be set on the command line: remove it from the file",
  );
  t.is(await check("- a"), "1 FILE:1:1: must be a mapping of settings, such as 'log-level: debug'");
  t.is(await check("listen: a\nlisten: b"), "1 FILE:2:1: map keys must be unique");
  t.regex(await check("listen: [", "--process", "up"), /^1 FILE:1:\d+: /);
  t.is(
    await check("", "--process", "node"),
    '125 invalid argument "node" for "--process" flag: expected one of manager, agent, up, start',
  );
  const { said } = await muster("config", "check", "/nowhere/muster.yaml");
  t.is(said, "muster: cannot read the configuration file /nowhere/muster.yaml: ENOENT: no such file or directory");
});

test("a process says where a wrong value was set, and starts nothing", async (t) => {
  const config = fileOf(t, `data-dir: ${folder(t)}\nnats-key: /nowhere\n`);
  const { said, status } = await muster("manager", "--config", config);
  t.is(status, 125);
  t.is(said, `muster: ${config}:2:1: nats-key: --nats-key requires --nats: it applies to those servers`);
  process.env["MUSTER_LOG_LEVEL"] = "loud";
  process.env["MUSTER_LISTN"] = "x";
  t.teardown(() => delete process.env["MUSTER_LISTN"]);
  const other = await muster("manager", "--data-dir", "/nowhere");
  t.regex(other.said, /^note: MUSTER_LISTN is not a setting and was ignored: did you mean MUSTER_LISTEN\?\n/);
  t.regex(other.said, /\nmuster: MUSTER_LOG_LEVEL: invalid argument "loud" for "--log-level"/);
  t.false(Object.hasOwn(process.env, "MUSTER_LOG_LEVEL"), "children do not inherit settings");
});

test("reading again names the changed settings, and a mistake changes nothing", async (t) => {
  const config = fileOf(t, "log-level: info\nlisten: a\n");
  const settings = await ProcessSettings.open(await flagsOf("manager"), { config }, {});
  writeFileSync(config, "log-level: debug\nlisten: b\nmetrics: c\n");
  t.deepEqual(settings.reread().toSorted(), ["listen", "log-level", "metrics"]);
  t.like(settings.values(), { "log-level": "debug", metrics: "c" });
  writeFileSync(config, "log-level: warn\nlisn: b\n");
  t.throws(() => settings.reread(), { message: /:2:1: lisn is not a setting/ });
  t.like(settings.values(), { "log-level": "debug" });
});

test("every long-running command is configurable, and the page has their settings", async (t) => {
  const configurable = (await allCommands(verbs)).filter(({ command }) => command.checkSettings !== null);
  t.deepEqual(configurable.map(({ name }) => name).toSorted(), [...processNames].toSorted());
  for (const { command, name } of configurable) {
    const { flags } = command.describe(name);
    const others = flags.filter(({ isSetting }) => !isSetting).map((flag) => flag.name);
    const once = ["fresh", "once"].filter((flag) => flags.some((each) => each.name === flag));
    t.deepEqual(others.toSorted(), [...once, "config", "host", "context", "help"].toSorted(), name);
    t.regex(command.help(name), /MUSTER_LOG_LEVEL for --log-level/);
  }
  const page = readFileSync(new URL("../../docs/configuration.md", import.meta.url), "utf8");
  t.is(page, await withSettingsTable(page), "run 'npm run reference'");
});
