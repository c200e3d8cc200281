// Task drivers as real processes beside an agent: tasks survive kills of each part.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { mockDriver } from "../fixtures/plugin-launch.ts";
import {
  MusterProcess,
  startAgent,
  startManager,
  tempDir,
  type TestAgent,
  type TestManager,
} from "../fixtures/muster.ts";
import { commandOf, kill, processesOf } from "../fixtures/processes.ts";
import { terminal } from "../fixtures/terminal.ts";
import { until } from "../fixtures/until.ts";

const execDriver = join(mockDriver, "../muster-driver-exec");

interface Row {
  readonly ID: string;
  readonly CurrentState: string;
  readonly Error: string;
}

async function world(t: ExecutionContext, ...args: readonly string[]) {
  const manager = await startManager(t);
  await manager.patience();
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

test.serial("a task runs on a plugin through kill -9 of plugin and agent, and starts once", async (t) => {
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
  t.deepEqual(plugins(agent), [second], "the plugin was recovered");
  t.true(await isRunning());
  await manager.muster("service", "rm", "long");
  await until("all processes to exit", () => readdirSync(join(agent.dataDir, "allocs")).length === 0);
  // Records go last; each removal is a flushed write.
  const records = () => readdirSync(join(agent.dataDir, "state")).filter((name) => /^driver-(task|run)/.test(name));
  await until("no record to be left", () => records().length === 0);
});

test.serial("two plugins with the same name prevent the agent from starting, and its error names both", async (t) => {
  const manager = await startManager(t);
  const token = await manager.muster("token", "worker");
  const dataDir = tempDir(t, "agent");
  const both = ["--driver", `first=${mockDriver}`, "--driver", `second=${mockDriver}`];
  const agent = new MusterProcess(
    dataDir,
    ["agent", "--join", manager.address, "--token", token, "--data-dir", dataDir, ...both],
    {},
    [],
  );
  t.teardown(() => agent.end());
  await until("the agent to exit", () => !agent.isRunning);
  t.regex(
    agent.output,
    /two driver plugins have the name mock: (first|second) \(.*\) and (first|second) \(.*\): remove/,
  );
  t.deepEqual(processesOf(dataDir), [], "no plugin remains");
});

test.serial(
  "a driver's report becomes the task's exit reason, and a wrong configuration names its field",
  async (t) => {
    const { manager } = await world(t);
    await t.throwsAsync(create(manager, "wrong", { run_for: "1s", exit_cod: 7 }), { message: /exit_cod/ });
    await create(manager, "fails", { run_for: "10ms", exit_code: 7 }, "--restart-condition", "none");
    await until("the end", async () => /exit \(7\)/.test((await tasksOf(manager, "fails"))[0]?.Error ?? ""));
    await create(manager, "ends", { run_for: "10ms" }, "--restart-condition", "none");
    await until(
      "the end",
      async () => (await tasksOf(manager, "ends"))[0]?.CurrentState.startsWith("Complete") === true,
    );
    await create(manager, "refused", { start_error: "no such thing" }, "--restart-condition", "none");
    await until("the end", async () => /no such thing/.test((await tasksOf(manager, "refused"))[0]?.Error ?? ""));
    t.regex((await tasksOf(manager, "refused"))[0]?.CurrentState ?? "", /^Failed/);
  },
);

test.serial("an unhealthy driver excludes its node from scheduling, and why says so", async (t) => {
  const { manager } = await world(t, "--driver-config", 'mock={"health": "unhealthy"}');
  await create(manager, "waits", { run_for: "1h" });
  await until("the reason", async () => /missing plugin/.test((await tasksOf(manager, "waits"))[0]?.Error ?? ""));
  t.regex(await manager.muster("why", "waits.1"), /node one: its driver mock is unhealthy: configured as unhealthy/);
  t.regex(
    await manager.muster("node", "inspect", "--pretty", "one"),
    /Drivers:\n exec 0.1.0 healthy.*\n mock 0.1.0 unhealthy/,
  );
});

test.serial("a task's logs include the output from while the agent was dead", async (t) => {
  const { agent, manager } = await world(t, "--driver", `exec=${execDriver}`);
  const script = 'echo "to $NOMAD_TASK_NAME"; echo err >&2; for i in 1 2 3 4; do sleep 1; echo tick $i; done';
  const config = JSON.stringify({ command: "/bin/sh", args: ["-c", `${script}; sleep 1000`] });
  const quick = ["--stop-signal", "SIGKILL", "--restart-delay", "0s"];
  const create = ["service", "create", "-d", "--name", "says", "--driver", "exec", "--driver-config", config];
  await manager.muster(...create, ...quick);
  const logs = (): Promise<string> => manager.muster("task", "logs", "--raw", "says.1");
  await until("the first lines", async () => /to says\n/.test(await logs()));
  await agent.process.end("SIGKILL");
  await new Promise((resolve) => setTimeout(resolve, 3_000));
  agent.process.start();
  await until("all lines", async () => /tick 4/.test(await logs()));
  t.regex(await logs(), /tick 1\ntick 2\ntick 3\ntick 4/);
  await manager.muster("service", "rm", "says");
  await until("all processes to exit", () => readdirSync(join(agent.dataDir, "allocs")).length === 0);
});

test.serial("a command runs in a task, and the task can be inspected and signalled", async (t) => {
  const { manager } = await world(t, "--driver", `exec=${execDriver}`);
  const config = JSON.stringify({ command: "sleep", args: ["1000"] });
  await manager.muster("service", "create", "--name", "says", "--driver", "exec", "--driver-config", config);
  const task = (...words: string[]): Promise<string> => manager.muster("task", ...words);
  t.is(await task("exec", "says.1", "sh", "-c", "cat; echo in $NOMAD_JOB_NAME"), "in says");
  const failed = await t.throwsAsync<Error & { code?: number; stderr?: string }>(
    task("exec", "says.1", "sh", "-c", "echo wrong >&2; exit 41"),
  );
  t.is(failed?.code, 41);
  t.is(failed?.stderr, "wrong\n");
  const typed = await terminal(
    ["--host", `unix://${manager.dataDir}/control.sock`, "task", "exec", "-it", "says.1", "sh"],
    ["stty size; echo $((40 + 2))", "exit 7"],
  );
  t.is(typed.code, 7, typed.output);
  t.regex(typed.output, /\n42\r+\n/);
  t.regex(typed.output, /\n31 77\r+\n/);
  t.regex(await task("stats", "--no-stream", "says.1"), /^TASK .*\n\S+ +\d+\.\d+% +\S+/);
  const [before] = await tasksOf(manager, "says");
  await task("signal", "-s", "KILL", "says.1");
  await until("the task's successor", async () => (await tasksOf(manager, "says"))[0]?.ID !== before?.ID);
  t.true((await tasksOf(manager, "says")).some(({ Error }) => /SIGKILL/.test(Error)));
});

test.serial("a node offers its configured generic resources: tasks get units and learn which, or wait", async (t) => {
  const { manager } = await world(t, "--node-generic-resource", "gpu=a1,gpu=b2", "--node-generic-resource", "ssd=3");
  const [node] = JSON.parse(await manager.muster("node", "inspect", "one")) as [
    { readonly Description: { readonly Resources: { readonly GenericResources: readonly object[] } } },
  ];
  t.deepEqual(node.Description.Resources.GenericResources, [
    { DiscreteResourceSpec: { Kind: "ssd", Value: 3 } },
    { NamedResourceSpec: { Kind: "gpu", Value: "a1" } },
    { NamedResourceSpec: { Kind: "gpu", Value: "b2" } },
  ]);
  const asks = ["--generic-resource", "gpu=1", "--generic-resource", "ssd=1", "--limit-cpu", "0.5"];
  // For either version of cgroups.
  const quota = [
    "P=$(sed -nE 's/^[0-9]+:cpu(,cpuacct)?://p' /proc/self/cgroup)",
    'if [ -n "$P" ]; then cat "/sys/fs/cgroup/cpu$P/cpu.cfs_quota_us"; else cat "/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)/cpu.max"; fi',
  ];
  const script = ["env | grep DOCKER_RESOURCE | sort", ...quota, "sleep 1d"].join("; ");
  const flags = ["--name", "web", "--replicas", "3", "--driver", "exec", ...asks];
  await manager.muster("service", "create", "-d", ...flags, "--", "/bin/sh", "-c", script);
  const rows = async () => tasksOf(manager, "web");
  await until("two to run and the third to report why it does not", async () => {
    const states = (await rows()).map(({ CurrentState, Error }) => `${CurrentState.split(" ")[0]} ${Error}`);
    return (
      states.filter((state) => state.startsWith("Running")).length === 2 &&
      states.some((state) => state.includes("insufficient resources on 1 node"))
    );
  });
  const logs = async () => manager.muster("service", "logs", "--raw", "web");
  await until("both to print their units", async () => (await logs()).trim().split("\n").length >= 6);
  const said = (await logs()).trim().split("\n").sort();
  t.deepEqual(
    said.filter((line) => line.startsWith("DOCKER")),
    ["DOCKER_RESOURCE_GPU=a1", "DOCKER_RESOURCE_GPU=b2", "DOCKER_RESOURCE_SSD=1", "DOCKER_RESOURCE_SSD=1"],
  );
  t.is(said.filter((line) => /^50000( 100000)?$/.test(line)).length, 2, "half a processor and no more");
});
