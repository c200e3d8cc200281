// Starts that Nomad's raw_exec rejects or dies in leave nothing behind, and are retried ever less often.
import { chmodSync, existsSync, globSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import anyTest, { type ExecutionContext } from "ava";
import { tempDir } from "../../fixtures/muster.ts";
import { commandOf, isAlive, kill, processesOf } from "../../fixtures/processes.ts";
import { until } from "../../fixtures/until.ts";
import { peerPath, peersMissing } from "../go/peers.ts";
import { createLong, nomadWorld, tasksOf, type NomadWorld } from "./nomad-world.ts";

const missing = peersMissing("nomad-driver") ?? (process.getuid?.() === 0 ? null : "needs root");
const test = missing === null ? anyTest.serial : anyTest.serial.skip;

const executors = (dataDir: string): readonly number[] =>
  processesOf(dataDir).filter((pid) => commandOf(pid).includes(" executor "));

const cgroupsOf = (taskId: string): readonly string[] =>
  globSync([`/sys/fs/cgroup/*/nomad/${taskId}.*`, `/sys/fs/cgroup/nomad.slice/share/${taskId}.*`]);

/** Freezes the task's control group and returns its path; undefined if it does not exist yet. */
function frozen(taskId: string): string | undefined {
  for (const [folder, file, value] of [
    [`/sys/fs/cgroup/freezer/nomad/${taskId}.long`, "freezer.state", "FROZEN"],
    [`/sys/fs/cgroup/nomad.slice/share/${taskId}.long.scope`, "cgroup.freeze", "1"],
  ] as const) {
    if (!existsSync(join(folder, file))) continue;
    writeFileSync(join(folder, file), value);
    return folder;
  }
  return undefined;
}

const membersOf = (group: string): readonly string[] =>
  readFileSync(join(group, "cgroup.procs"), "utf8").split("\n").filter(Boolean);

async function failedTasks({ manager }: NomadWorld): Promise<readonly { ID: string; Error: string }[]> {
  return (await tasksOf(manager, "long")).filter(({ CurrentState }) => CurrentState.startsWith("Failed"));
}

/** While the tasks are remembered they have no process and no control group, and afterwards no directory. */
async function leavesNothing(t: ExecutionContext, world: NomadWorld, taskIds: readonly string[]): Promise<void> {
  const { agent, manager } = world;
  for (const id of taskIds) {
    t.deepEqual(cgroupsOf(id), [], "no control group");
    const left = processesOf(join(agent.dataDir, "allocs", id)).map(commandOf);
    t.deepEqual(
      left.filter((command) => command.includes(" executor ")),
      [],
      "no process",
    );
  }
  await manager.muster("service", "rm", "long");
  await until("all directories to be removed", () => readdirSync(join(agent.dataDir, "allocs")).length === 0);
  t.deepEqual(executors(agent.dataDir), []);
}

async function refusedAgainAndAgain(t: ExecutionContext, config: object, error: RegExp): Promise<void> {
  const world = await nomadWorld(t, "raw_exec", { enabled: true });
  await createLong(world.manager, "raw_exec", config, "--restart-delay", "1s");
  const failed = await until("three starts to be rejected", async () => {
    const tasks = await failedTasks(world);
    return tasks.length >= 3 ? tasks : null;
  });
  for (const { Error: text } of failed) t.regex(text, error);
  await until("why to report a longer delay", async () => {
    const text = await world.manager.muster("why", "long.1");
    return /starts were refused/.test(text) && /retries at:/.test(text);
  });
  await leavesNothing(
    t,
    world,
    failed.map(({ ID }) => ID),
  );
}

test("a missing command leaves no process, control group or directory, and is retried ever less often", (t) =>
  refusedAgainAndAgain(t, { command: "/nonexistent/command", args: ["1"] }, /nonexistent/));

test("a start rejected after the executor runs leaves nothing either", (t) => {
  // It exists and is executable, so that only the kernel rejects it, in the task's control groups.
  const script = join(tempDir(t, "refused"), "script");
  writeFileSync(script, "#!/nonexistent/interpreter\n");
  chmodSync(script, 0o755);
  return refusedAgainAndAgain(t, { command: script }, /fork\/exec/);
});

test("a plugin killed during a start leaves nothing, and its task fails", async (t) => {
  const world = await nomadWorld(t, "raw_exec", { enabled: true });
  const { agent, manager } = world;
  await createLong(manager, "raw_exec", { command: "sleep", args: ["861741"] }, "--restart-condition", "none");
  // Frozen as soon as the agent has created it, so that processes forked into it never reach an answer.
  const group = await new Promise<string>((resolve) => {
    const look = (): void => {
      const [id] = globSync("*", { cwd: join(agent.dataDir, "allocs") });
      const found = id === undefined ? undefined : frozen(id);
      if (found === undefined) setImmediate(look);
      else resolve(found);
    };
    look();
  });
  await until("the start to be frozen", () => membersOf(group).length > 0);
  const held = executors(agent.dataDir);
  t.is(held.length, 1);
  const plugin = processesOf(agent.dataDir).find((pid) => commandOf(pid) === `${peerPath("nomad-driver")} raw_exec`);
  kill(plugin!, "SIGKILL");
  const [failed] = await until("the task to fail", async () => {
    const tasks = await failedTasks(world);
    return tasks.length > 0 ? tasks : null;
  });
  t.regex(failed!.Error, /died/);
  await until("the executor to exit", () => !held.some(isAlive));
  await leavesNothing(t, world, [failed!.ID]);
});
