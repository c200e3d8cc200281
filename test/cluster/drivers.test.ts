// Task drivers as real processes beside an agent: tasks run through them, whoever is killed.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { mockDriver } from "../fixtures/plugin-launch.ts";
import { startAgent, startManager, type TestAgent, type TestManager } from "../fixtures/muster.ts";
import { commandOf, kill, processesOf } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";

interface Row {
  readonly ID: string;
  readonly CurrentState: string;
  readonly Error: string;
}

async function world(t: ExecutionContext, ...args: readonly string[]) {
  const manager = await startManager(t);
  const agent = await startAgent(t, manager, { hostname: "one", args: ["--driver", `mock=${mockDriver}`, ...args] });
  return { manager, agent };
}

function plugins({ dataDir }: TestAgent): readonly number[] {
  return processesOf(dataDir).filter((pid) => commandOf(pid).includes("drivers/mock/main.ts"));
}

async function tasksOf(manager: TestManager, service: string): Promise<readonly Row[]> {
  return manager.json<Row>("service", "ps", service, "--no-trunc");
}

async function create(manager: TestManager, name: string, config: object, ...flags: string[]): Promise<void> {
  const args = ["service", "create", "-d", "--name", name, "--driver", "mock", ...flags];
  await manager.muster(...args, "--driver-config", JSON.stringify(config));
}

test.serial(
  "a task runs on a plugin, through kill -9 of the plugin and of the agent, and is started once",
  async (t) => {
    const { agent, manager } = await world(t);
    await create(manager, "long", { run_for: "1h" });
    const isRunning = async (): Promise<boolean> => {
      const rows = await tasksOf(manager, "long");
      return rows.length === 1 && rows[0]?.CurrentState.startsWith("Running") === true;
    };
    await until("the task to run", isRunning);
    const [first] = plugins(agent);
    kill(first as number);
    await until("another plugin", () => plugins(agent).length === 1 && plugins(agent)[0] !== first);
    t.true(await isRunning());
    const [second] = plugins(agent);
    await agent.process.end("SIGKILL");
    t.deepEqual(plugins(agent), [second]);
    agent.process.start();
    await until("the agent's next session", () => agent.sessions().length > 1);
    t.deepEqual(plugins(agent), [second], "the plugin was found again");
    t.true(await isRunning());
    await manager.muster("service", "rm", "long");
    await until("nothing to be left", () => readdirSync(join(agent.dataDir, "allocs")).length === 0);
    t.deepEqual(
      readdirSync(join(agent.dataDir, "state")).filter((name) => /^driver-(task|run)/.test(name)),
      [],
    );
  },
);

test.serial("what a task's driver says of it is how it ended, and a wrong configuration names its field", async (t) => {
  const { manager } = await world(t);
  await create(manager, "fails", { run_for: "10ms", exit_code: 7 }, "--restart-condition", "none");
  await until("the end", async () => /exit \(7\)/.test((await tasksOf(manager, "fails"))[0]?.Error ?? ""));
  await create(manager, "ends", { run_for: "10ms" }, "--restart-condition", "none");
  await until("the end", async () => (await tasksOf(manager, "ends"))[0]?.CurrentState.startsWith("Complete") === true);
  await create(manager, "refused", { start_error: "no such thing" }, "--restart-condition", "none");
  await until("the end", async () => /no such thing/.test((await tasksOf(manager, "refused"))[0]?.Error ?? ""));
  t.regex((await tasksOf(manager, "refused"))[0]?.CurrentState ?? "", /^Failed/);
});
