// Nomad's own drivers under our agent: their tasks start, and go on in the same process whoever is ended or killed.
import { chmodSync, globSync, readFileSync, readdirSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import anyTest, { type ExecutionContext } from "ava";
import { engineMissing, startEngine } from "../../fixtures/docker-engine.ts";
import { startAgent, startManager, tempDir, type TestAgent, type TestManager } from "../../fixtures/muster.ts";
import { commandOf, isAlive, kill, processesOf } from "../../fixtures/processes.ts";
import { until } from "../../fixtures/until.ts";
import { unplaceChroot } from "../../../node/task-home/chroot.ts";
import { peerPath, peersMissing } from "../go/peers.ts";

const missing = peersMissing("nomad-driver") ?? (process.getuid?.() === 0 ? null : "needs root");
const test = missing === null ? anyTest.serial : anyTest.serial.skip;
const testWithEngine = missing === null && engineMissing() === null ? anyTest.serial : anyTest.serial.skip;

/** An executable that serves one of Nomad's drivers. */
function driver(t: ExecutionContext, name: string): string {
  const path = join(tempDir(t, "nomad"), name);
  writeFileSync(path, `#!/bin/sh\nexec ${peerPath("nomad-driver")} ${name}\n`);
  chmodSync(path, 0o755);
  return path;
}

interface Row {
  readonly ID: string;
  readonly CurrentState: string;
  readonly Error: string;
}

const tasksOf = (manager: TestManager, service: string): Promise<readonly Row[]> =>
  manager.json<Row>("service", "ps", service, "--no-trunc");

async function world(t: ExecutionContext, name: string, config: object | null) {
  const manager = await startManager(t);
  await manager.patience();
  const args = ["--driver", `${name}=${driver(t, name)}`];
  if (config !== null) args.push("--driver-config", `${name}=${JSON.stringify(config)}`);
  // As `nobody`: to a task of root's Nomad's exec gives all capabilities, of which this machine may lack some.
  const agent = await startAgent(t, manager, { hostname: "one", args, tasksAs: "default" });
  // What a failed test leaves.
  t.teardown(async () => {
    for (const id of readdirSync(join(agent.dataDir, "allocs")))
      for (const folder of globSync(`/sys/fs/cgroup/*/nomad/${id}.long`)) {
        for (const pid of readFileSync(join(folder, "cgroup.procs"), "utf8").split("\n"))
          if (pid !== "") kill(Number(pid));
        await until("the end of its processes", () => readFileSync(join(folder, "cgroup.procs"), "utf8") === "");
        rmdirSync(folder);
      }
    await unplaceChroot(agent.dataDir);
  });
  return { manager, agent };
}

const isRunning = async (manager: TestManager): Promise<boolean> => {
  const rows = await tasksOf(manager, "long");
  if (rows.some(({ Error }) => Error !== "")) throw new Error(rows.map(({ Error }) => Error).join("; "));
  return rows.length === 1 && rows[0]?.CurrentState.startsWith("Running") === true;
};

/** Ends agent and plugin in each way, and looks after each that the one task is the one process that it was. */
async function outlives(
  t: ExecutionContext,
  { agent, manager }: { readonly agent: TestAgent; readonly manager: TestManager },
  name: string,
  processes: () => readonly number[],
): Promise<void> {
  await until("the task to run", () => isRunning(manager));
  const task = await until("its process", () => (processes().length === 1 ? processes() : null));
  const plugins = (): readonly number[] =>
    processesOf(agent.dataDir).filter((pid) => commandOf(pid) === `${peerPath("nomad-driver")} ${name}`);
  const same = async (what: string): Promise<void> => {
    await until(`the plugin after ${what}`, () => plugins().length === 1);
    const answers = async (): Promise<boolean> =>
      (await manager.muster("task", "stats", "--no-stream", "long.1").catch(() => "")).split("\n").length > 1;
    await until(`an answer about the task after ${what}`, answers);
    t.deepEqual(processes(), task, what);
    t.true(await isRunning(manager), what);
  };
  await same("its start");
  for (const signal of ["SIGKILL", "SIGTERM"] as const) {
    const [plugin] = plugins();
    kill(plugin as number, signal);
    await until("the plugin's end", () => !isAlive(plugin as number));
    await same(`${signal} of the plugin`);
  }
  for (const signal of ["SIGKILL", "SIGTERM"] as const) {
    const sessions = agent.sessions().length;
    await agent.process.end(signal);
    agent.process.start();
    await until("the agent's next session", () => agent.sessions().length > sessions);
    await same(`${signal} of the agent`);
  }
  await manager.muster("service", "rm", "long");
  await until("the end of the task", () => processes().length === 0);
  await until("nothing to be left", () => readdirSync(join(agent.dataDir, "allocs")).length === 0);
}

const create = (manager: TestManager, name: string, config: object): Promise<string> =>
  manager.muster(
    "service",
    "create",
    "-d",
    "--name",
    "long",
    "--driver",
    name,
    "--stop-grace-period",
    "1s",
    "--driver-config",
    JSON.stringify(config),
  );

/** Processes of this machine that are called so. */
const sleepers = (command: string) => (): readonly number[] =>
  readdirSync("/proc")
    .map(Number)
    .filter((pid) => pid > 0 && isAlive(pid) && commandOf(pid).replace(/^\S*\//, "") === command);

test("a task of Nomad's raw_exec keeps its process through every end of plugin and agent", async (t) => {
  const { agent, manager } = await world(t, "raw_exec", { enabled: true });
  await create(manager, "raw_exec", { command: "sleep", args: ["861731"] });
  await outlives(t, { agent, manager }, "raw_exec", sleepers("sleep 861731"));
});

test("a task of Nomad's exec runs in a chroot of the node's paths, and keeps its process likewise", async (t) => {
  const { agent, manager } = await world(t, "exec", null);
  // A name that is looked up in the chroot; it says what it sees there, and cannot write.
  const script =
    "exec 2>&1; ls -d /bin /etc/passwd /usr/bin /alloc/data /local /secrets; touch /usr/x; exec sleep 861732";
  await create(manager, "exec", { command: "sh", args: ["-c", script] });
  const logs = (): Promise<string> => manager.muster("service", "logs", "--raw", "long");
  await until("the task to run", () => isRunning(manager));
  const said = await until("all that it says", async () => {
    const text = await logs();
    if (!/touch: .*(Read-only|denied)/.test(text)) throw new Error(text);
    return text;
  });
  t.regex(said, /\/bin\n.*\/etc\/passwd\n.*\/usr\/bin/s);
  t.regex(said, /\/alloc\/data/);
  t.false(/No such file/.test(said), said);
  await outlives(t, { agent, manager }, "exec", sleepers("sleep 861732"));
  t.false(readFileSync("/proc/self/mountinfo", "utf8").includes(agent.dataDir), "nothing of it is mounted");
});

testWithEngine("a task of Nomad's docker keeps its process through every end of plugin and agent", async (t) => {
  const engine = await startEngine(t);
  const { agent, manager } = await world(t, "docker", { endpoint: `unix://${join(engine.dir, "docker.sock")}` });
  const config = { image: "bb:1", command: "sleep", args: ["861733"], network_mode: "none" };
  await create(manager, "docker", config);
  await outlives(t, { agent, manager }, "docker", sleepers("sleep 861733"));
});
