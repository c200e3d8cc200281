// SIGHUP makes a running process read its settings again.
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { startManager, tempDir } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";

test("SIGHUP applies a changed log level, and the log names what needs a restart or is wrong", async (t) => {
  const config = join(tempDir(t, "config"), "manager.yaml");
  writeFileSync(config, "log-level: warn\n");
  const manager = await startManager(t, { args: ["--config", config] });
  await manager.ready();
  const reload = (text: string): void => {
    writeFileSync(config, text);
    manager.process.child.kill("SIGHUP");
  };
  t.notRegex(manager.process.output, /"level":30/);
  reload("log-level: info\nmetrics: 127.0.0.1:1\n");
  await until("a reload", () => manager.process.output.includes('"configuration reloaded"'));
  t.regex(manager.process.output, /need a restart of this process: metrics"/);
  reload("log-level: debug\nmetric: 127.0.0.1:1\n");
  await until(
    "a mistake",
    () =>
      manager.process.output.includes("not reloaded: ") &&
      manager.process.output.includes(`${config}:2:1: metric is not a setting`),
  );
  t.true(manager.process.isRunning);
  t.regex(await manager.muster("node", "ls"), /Leader/);
});

test("a log file is reopened at SIGHUP after its rotation", async (t) => {
  const log = join(tempDir(t, "log"), "muster", "manager.log");
  const manager = await startManager(t, { env: { MUSTER_LOG_FILE: log } });
  await manager.ready();
  t.regex(readFileSync(log, "utf8"), /"name":"muster-manager"/);
  t.notRegex(manager.process.output, /"level":30/);
  renameSync(log, `${log}.1`);
  manager.process.child.kill("SIGHUP");
  await until("a new file", () => existsSync(log) && readFileSync(log, "utf8").includes("configuration reloaded"));
});
