// Secrets and configs in a stock engine's containers: as files, as templates, changed by an update, removed at the end.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import anyTest from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { startManager, tempDir } from "../fixtures/muster.ts";
import { joined, running, tasksOf } from "../fixtures/swarm.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const missing = engineMissing();
const test = missing === null ? anyTest.serial : anyTest.serial.skip;

test("a stock engine's tasks have their secrets and configs, with templates expanded, and new ones after an update", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  const engine = await startEngine(t);
  const nodeId = await joined(manager, engine);
  const muster = (...parts: readonly (readonly string[])[]) => manager.muster(...parts.flat());
  const folder = tempDir(t, "contents");
  const file = (name: string, text: string | Uint8Array): string => {
    const path = join(folder, name);
    writeFileSync(path, text);
    return path;
  };
  const oneTask = () =>
    until("one task", async () => {
      const found = await running(manager, "web");
      return found.length === 1 && (await engine.containers()).length === 1 ? (found[0] ?? null) : null;
    });
  const template = [
    "{{.Service.Name}} {{.Service.Labels.tier}} {{.Task.Slot}} {{.Node.ID}}",
    '{{env "COLOUR"}} {{secret "password"}} {{config "/etc/raw"}}',
    "",
  ].join("\n");
  await manager.muster("secret", "create", "password-1", file("p1", "canary-one"));
  await manager.muster("secret", "create", "password-2", file("p2", "canary-two"));
  await manager.muster(
    "secret",
    "create",
    "--template-driver=golang",
    "dsn",
    file("dsn", 'pg://{{secret "password"}}@db'),
  );
  await manager.muster("config", "create", "--template-driver=golang", "app", file("app", template));
  await manager.muster("config", "create", "raw", file("raw", Uint8Array.from([0, 255, 10])));
  await muster(
    ["service", "create", "--name=web", "--label=tier=front", "--env=COLOUR=green-{{.Task.Slot}}"],
    ["--secret=source=password-1,target=password,mode=0400", "--secret=source=dsn,target=dsn,uid=7,gid=8,mode=0440"],
    ["--config=source=app,target=/etc/app.conf", "--config=source=raw,target=/etc/raw"],
    ["--stop-signal=SIGKILL", "--update-monitor=1s", "bb:1", "sleep", "1000"],
  );
  const first = await oneTask();
  t.is(await engine.inTask("web", "cat /run/secrets/password"), "canary-one");
  t.is(await engine.inTask("web", "cat /run/secrets/dsn"), "pg://canary-one@db");
  t.is(
    await engine.inTask("web", "busybox stat -c '%a %u %g' /run/secrets/password /run/secrets/dsn"),
    "400 0 0\n440 7 8",
  );
  t.is(await engine.inTask("web", "busybox od -An -tu1 /etc/raw"), "0 255  10");
  const expanded = await engine.inTask("web", "cat /etc/app.conf");
  t.regex(expanded, new RegExp(`^web front 1 ${nodeId}\\ngreen-1 canary-one .`));
  t.is(await engine.inTask("web", "echo $COLOUR"), "green-1");

  // A secret in use cannot be removed; an update replaces it, which creates a new task.
  await t.throwsAsync(manager.muster("secret", "rm", "password-1"), {
    message: /in use by the following service: web/,
  });
  await muster([
    "service",
    "update",
    "--secret-rm=password-1",
    "--secret-add=source=password-2,target=password,mode=0400",
    "web",
  ]);
  const second = await oneTask();
  t.not(second.id, first.id);
  t.is(await engine.inTask("web", "cat /run/secrets/password /run/secrets/dsn"), "canary-twopg://canary-two@db");
  await manager.muster("secret", "rm", "password-1");

  // A template that cannot be expanded is reported in the task's own words.
  await manager.muster("config", "create", "--template-driver=golang", "wrong", file("wrong", '{{secret "nobody"}}'));
  await muster(
    ["service", "create", "-d", "--name=broken", "--restart-condition=none", "--config=source=wrong,target=/wrong"],
    ["bb:1", "sleep", "1000"],
  );
  const failed = await until("a rejected task", async () => {
    const [task] = await tasksOf(manager, "broken");
    return task?.status?.err === undefined || task.status.err === "" ? null : task;
  });
  t.regex(failed.status?.err ?? "", /failed to expand templated config .*secret target nobody not found/);

  await manager.muster("service", "rm", "web", "broken");
  await until("no containers", async () => (await engine.docker("ps", "-aq")) === "");
  t.false(readFileSync("/proc/self/mounts", "utf8").includes(`${engine.dir}/data/containers`), "no tmpfs remains");
  for (const name of ["password-2", "dsn"]) await manager.muster("secret", "rm", name);
  // The engine never wrote a secret's value to its disk, in any of its layers and records.
  t.is(execFileSync("sh", ["-c", `grep -rl canary- "${engine.dir}/data" || true`], { encoding: "utf8" }), "");
});
