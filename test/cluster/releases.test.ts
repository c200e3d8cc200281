// Data of earlier releases, as test/fixtures/record-release.ts recorded it: the present version goes on with the data dirs of
// a manager and of an agent, and restores the backup.
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { runningTasks, serviceNames, tasks } from "../fixtures/control-client.ts";
import { earlierAgents, releases, releasesFolder, unpacked } from "../fixtures/earlier-version.ts";
import { asRoot, MusterProcess, runMuster, startManager, tempDir, type TestManager } from "../fixtures/muster.ts";
import { endProcessesOf } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

interface Facts {
  readonly version: string;
  readonly tasks: readonly string[];
  readonly token: string;
}

/** The state that every release's fixture has. */
async function checkState(t: ExecutionContext, manager: TestManager, facts: Facts): Promise<void> {
  // The schedule of "nightly" has been due since the data was recorded, so that its job may be there too.
  const services = (await serviceNames(manager)).filter((name) => !/^nightly-\d{8}-\d{6}$/.test(name));
  t.deepEqual(services, ["idle", "nightly", "web"]);
  t.is(await manager.muster("token", "worker"), facts.token);
  const names = async (noun: string) => (await manager.json<{ Name: string }>(noun, "ls")).map(({ Name }) => Name);
  t.deepEqual(await names("secret"), ["text"]);
  t.deepEqual(await names("config"), ["text"]);
  t.true((await names("network")).includes("back"));
  t.regex(await manager.muster("history", "service", "web"), /label/);
  const known = (await tasks(manager)).map(({ id }) => id);
  for (const id of facts.tasks) t.true(known.includes(id), `task ${id} is there`);
}

test("each release has its data and its program, and each earlier agent its program", (t) => {
  t.true(releases.length >= 1);
  const folders = readdirSync(releasesFolder, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  t.deepEqual(folders.map(({ name }) => name).toSorted(), releases.map(({ version }) => version).toSorted());
  const programs = unpacked(t);
  for (const { commit, version } of releases) {
    const manifest = readFileSync(join(programs, commit, "package.json"), "utf8");
    t.is((JSON.parse(manifest) as { readonly version: string }).version, version);
  }
  for (const commit of earlierAgents) t.true(existsSync(join(programs, commit, "cli/main.ts")), commit);
});

for (const { version: release } of releases) {
  const kept = join(releasesFolder, release);
  const facts = JSON.parse(readFileSync(join(kept, "facts.json"), "utf8")) as Facts;

  test.serial(`a manager and an agent go on with the data dirs of ${release}`, async (t) => {
    t.timeout(patient(300_000));
    const work = tempDir(t, "release");
    execFileSync("tar", ["-C", work, "-xzf", join(kept, "data-dirs.tar.gz")]);
    const manager = await startManager(t, { dataDir: join(work, "manager") });
    await checkState(t, manager, facts);
    const [before] = (await manager.json<{ ID: string; Hostname: string }>("node", "ls")).filter(
      ({ Hostname }) => Hostname === "one",
    );
    const agentDir = join(work, "agent");
    const agent = new MusterProcess(agentDir, ["agent", "--join", manager.address, "--data-dir", agentDir, ...asRoot]);
    t.teardown(async () => {
      await agent.end();
      await endProcessesOf(agentDir);
    });
    await until("two running tasks", async () => {
      if (!agent.isRunning) throw new Error(agent.output);
      return (await runningTasks(manager)).length === 2;
    });
    const after = await manager.json<{ ID: string; Status: string }>("node", "ls");
    t.is(after.find(({ ID }) => ID === before?.ID)?.Status, "Ready", "it is the same node");
    await manager.muster("service", "scale", "-d", "web=3");
    await until("three running tasks", async () => (await runningTasks(manager)).length === 3);
  });

  test.serial(`the backup of ${release} is restored, with its history`, async (t) => {
    t.timeout(patient(300_000));
    const [file, keys] = [join(kept, "cluster.backup"), ["--passphrase-file", join(kept, "passphrase")]];
    const verified = await runMuster(["backup", "--verify", file, ...keys]);
    t.regex(verified.stdout, new RegExp(`made by Muster ${release.replaceAll(".", "\\.")}\n$`), verified.stderr);
    const dataDir = join(tempDir(t, "restored"), "manager");
    const restored = await runMuster(["restore", file, "--data-dir", dataDir, ...keys]);
    t.is(restored.code, 0, restored.stderr);
    await checkState(t, await startManager(t, { dataDir }), facts);
  });
}
