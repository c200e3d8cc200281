/** A task of one of Nomad's drivers must keep its process, whichever other process is stopped or killed. */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import type { ExecutionContext } from "ava";
import type { TestManager } from "../../fixtures/muster.ts";
import { commandOf, isAlive, kill, processesOf } from "../../fixtures/processes.ts";
import { until } from "../../fixtures/until.ts";
import { peerPath } from "../go/peers.ts";
import { tasksOf, type NomadWorld } from "./nomad-world.ts";

/** Throws the errors of its tasks. */
export const isRunning = async (manager: TestManager): Promise<boolean> => {
  const rows = await tasksOf(manager, "long");
  if (rows.some(({ Error }) => Error !== "")) throw new Error(rows.map(({ Error }) => Error).join("; "));
  return rows.length === 1 && rows[0]?.CurrentState.startsWith("Running") === true;
};

/**
 * Ends agent and plugin in each way, and checks each time that the task of `long` is still the same single process. Removes the
 * service at the end.
 */
export async function outlives(
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
    await until("the plugin to exit", () => !isAlive(plugin as number));
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
  await until("the task to exit", () => processes().length === 0);
  await until("everything to be removed", () => readdirSync(join(agent.dataDir, "allocs")).length === 0);
}

/** Processes of this machine with that command line, whose program is given without its folder. */
export const processesCalled = (command: string) => (): readonly number[] =>
  readdirSync("/proc")
    .map(Number)
    .filter((pid) => pid > 0 && isAlive(pid) && commandOf(pid).replace(/^\S*\//, "") === command);
