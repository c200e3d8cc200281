// Nomad's own drivers under our agent: their tasks start, and go on in the same process whoever is ended or killed.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import anyTest, { type ExecutionContext } from "ava";
import { engineMissing, startEngine } from "../../fixtures/docker-engine.ts";
import type { TestManager } from "../../fixtures/muster.ts";
import { commandOf, isAlive, kill, processesOf } from "../../fixtures/processes.ts";
import { until } from "../../fixtures/until.ts";
import { peerPath, peersMissing } from "../go/peers.ts";
import { createLong, nomadWorld, tasksOf, type NomadWorld } from "./nomad-world.ts";

const missing = peersMissing("nomad-driver") ?? (process.getuid?.() === 0 ? null : "needs root");
const test = missing === null ? anyTest.serial : anyTest.serial.skip;
const testWithEngine = missing === null && engineMissing() === null ? anyTest.serial : anyTest.serial.skip;

const isRunning = async (manager: TestManager): Promise<boolean> => {
  const rows = await tasksOf(manager, "long");
  if (rows.some(({ Error }) => Error !== "")) throw new Error(rows.map(({ Error }) => Error).join("; "));
  return rows.length === 1 && rows[0]?.CurrentState.startsWith("Running") === true;
};

/** Ends agent and plugin in each way, and looks after each that the one task is the one process that it was. */
async function outlives(
  t: ExecutionContext,
  { agent, manager }: NomadWorld,
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

/** Processes of this machine that are called so. */
const sleepers = (command: string) => (): readonly number[] =>
  readdirSync("/proc")
    .map(Number)
    .filter((pid) => pid > 0 && isAlive(pid) && commandOf(pid).replace(/^\S*\//, "") === command);

test("a task of Nomad's raw_exec keeps its process through every end of plugin and agent", async (t) => {
  const { agent, manager } = await nomadWorld(t, "raw_exec", { enabled: true });
  await createLong(manager, "raw_exec", { command: "sleep", args: ["861731"] });
  await outlives(t, { agent, manager }, "raw_exec", sleepers("sleep 861731"));
});

test("a task of Nomad's exec runs in a chroot of the node's paths, and keeps its process likewise", async (t) => {
  const { agent, manager } = await nomadWorld(t, "exec", null);
  // A name that is looked up in the chroot; it says what it sees there, and cannot write.
  const script =
    "exec 2>&1; ls -d /bin /etc/passwd /usr/bin /alloc/data /local /secrets; touch /usr/x; exec sleep 861732";
  await createLong(manager, "exec", { command: "sh", args: ["-c", script] });
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
  const { agent, manager } = await nomadWorld(t, "docker", { endpoint: `unix://${join(engine.dir, "docker.sock")}` });
  const config = { image: "bb:1", command: "sleep", args: ["861733"], network_mode: "none" };
  await createLong(manager, "docker", config);
  await outlives(t, { agent, manager }, "docker", sleepers("sleep 861733"));
});
