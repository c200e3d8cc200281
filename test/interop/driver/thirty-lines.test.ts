// The driver of docs/drivers.md, word for word, under our host.
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { getPriority } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { packed, pluginLab, taskConfig } from "../../fixtures/plugin-launch.ts";

const top = fileURLToPath(new URL("../../..", import.meta.url));

test("the driver of docs/drivers.md runs, and is as short as the page says", async (t) => {
  const [, source = ""] = /```ts\n(.*?)```/s.exec(readFileSync(join(top, "docs/drivers.md"), "utf8")) ?? [];
  const body = source.split("\n").filter((line) => line !== "" && !/^(#!|import )/.test(line));
  t.true(body.length <= 30, `${body.length} lines`);

  const lab = pluginLab(t);
  mkdirSync(join(lab.folder, "drivers/shell"), { recursive: true });
  const path = join(lab.folder, "drivers/shell/main.mts");
  writeFileSync(path, source.replace("../../edges/", `${top}edges/`).replace("/usr/bin/env node", process.execPath));
  chmodSync(path, 0o755);

  const { driver } = await lab.running({ name: "shell", path, env: { NODE_OPTIONS: "" } });
  t.is((await driver.pluginInfo()).name, "shell");
  const schema = await driver.taskConfigSchema();
  const stdoutPath = join(lab.folder, "stdout");
  const script = { script: "echo $NAME; exec nice", nice: 5 };
  const short = taskConfig("a1/web/1", packed(schema, script), { env: { NAME: "hello" }, stdoutPath });
  await driver.startTask(short);
  t.is((await driver.waitTask(short.id)).result?.exitCode, 0);
  // In addition to our own.
  t.is(readFileSync(stdoutPath, "utf8"), `hello\n${getPriority() + 5}\n`);

  const long = taskConfig("a1/web/2", packed(schema, { script: "exec sleep 60" }));
  await driver.startTask(long);
  await driver.stopTask(long.id, 5_000, "");
  t.like((await driver.waitTask(long.id)).result, { exitCode: 143, signal: 15 });
});
