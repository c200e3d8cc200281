// Process tasks, from their short form to what the exec driver starts on a real plugin; and state left by an older agent.
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import type { AgentPlugins, DriverTask } from "../../actors/agent/ports.ts";
import { DriverPluginActor, knownPlugin, type DriverPluginPorts } from "../../actors/driver/plugin.ts";
import { PluginDriver } from "../../actors/driver/plugin-driver.ts";
import { TaskHomeDirectories } from "../../linux/task-home/homes.ts";
import { createPluginLauncher } from "../../edges/plugin/host/launcher.ts";
import { execAsDriver } from "../../machines/driver/spec.ts";
import { Duration, ExecSpec } from "../../proto/gen/messages.ts";
import { NomadDriverConfig } from "../../proto/gen/nomad.ts";
import { Host } from "../../runtime/host.ts";
import { SystemClock } from "../../runtime/system/clock.ts";
import { FileDisk } from "../../runtime/system/file-disk.ts";
import { driverTask } from "../support/driver-task.ts";
import { SystemRandom } from "../../runtime/system/random.ts";
import { createTelemetry } from "../../runtime/telemetry/telemetry.ts";
import { mockDriver } from "../fixtures/plugin-launch.ts";
import { endProcessesOf, isAlive } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";

interface Life {
  readonly driver: PluginDriver;
  readonly plugin: DriverPluginActor;
}

interface Node {
  readonly folder: string;
  /** Another life of the agent. */
  life(): Promise<Life>;
  output(taskId: string): string;
}

async function node(t: ExecutionContext): Promise<Node> {
  const folder = mkdtempSync(join(tmpdir(), "me"));
  const clock = new SystemClock();
  const telemetry = await createTelemetry({ service: "test", level: "silent", otlpEndpoint: undefined });
  const { log } = telemetry;
  const homes = new TaskHomeDirectories({
    directory: join(folder, "allocs"),
    outputSocket: join(folder, "o.sock"),
    clock,
    log,
    environment: { PATH: process.env["PATH"], HOME: "/nowhere", SECRET: "of the agent" },
    users: { fallback: "", allowsRoot: true },
  });
  const launcher = createPluginLauncher({
    log,
    logDir: join(folder, "log"),
    socketDir: join(folder, "s"),
    env: process.env,
  });
  const path = join(mockDriver, "../muster-driver-exec");
  const binary = { name: "exec", path, args: [], env: {}, autoMtls: false };
  const agent = NomadDriverConfig.create();
  const plugins: AgentPlugins = {
    launcher,
    homes,
    cgroups: null,
    binaries: [{ binary, config: null, makesCgroups: true }],
    agent,
  };
  const facts = { architecture: "x86_64", os: "linux", nanoCpus: 2e9, memoryBytes: 2 ** 32, engineVersion: "1" };
  const lives: Life[] = [];
  t.teardown(async () => {
    // Before its processes are ended: a plugin that dies is restarted.
    for (const { driver, plugin } of lives) {
      driver.close();
      plugin.release();
    }
    await endProcessesOf(folder);
    rmSync(folder, { recursive: true, force: true });
  });
  return {
    folder,
    output: (taskId) => readFileSync(join(folder, "allocs", taskId, "output", "stdout"), "utf8"),
    async life() {
      const host = new Host({ clock, telemetry, onCrash: (_, error) => t.fail(String(error)) });
      const disk = await FileDisk.open(join(folder, "state"));
      const ports: DriverPluginPorts = { clock, random: new SystemRandom(), telemetry, host, disk, launcher };
      const options = { binary, config: { state_dir: join(folder, "runs") }, agent };
      const silent = { onNews: () => {}, onFingerprint: () => {}, onTaskEvent: () => {} };
      const plugin = new DriverPluginActor(ports, { ...options, ...silent }, await knownPlugin(disk, "exec"));
      const made: Life = {
        plugin,
        driver: new PluginDriver(ports, { kind: "exec", plugin, plugins, facts, networks: null }),
      };
      lives.push(made);
      return made;
    },
  };
}

const sh = (script: string): Partial<ExecSpec> => ({ command: "/bin/sh", args: ["-c", script] });

async function run(driver: PluginDriver, of: DriverTask): Promise<number> {
  const prepared = await driver.prepare(of);
  if (prepared.kind === "refused") throw new Error(prepared.reason);
  const started = await driver.start(of);
  if (started.kind === "refused") throw new Error(started.reason);
  return started.pid;
}

test("words of a command and values of its environment are literal, although a driver's configuration has expressions", async (t) => {
  const world = await node(t);
  const { driver } = await world.life();
  const volumes = [{ source: "v", target: "/data", path: world.folder }];
  const of = driverTask(
    "t1",
    {
      ...sh('A=shell; echo "${A} $${A} %{x}"; echo "$B $C"; env; ls "$MUSTER_VOLUMES/data"; pwd; exit 3'),
      env: ["B=${HOME}", "C={{.Task.Slot}}", "HOME=/elsewhere"],
    },
    { volumes },
  );
  await run(driver, of);
  t.like(await driver.wait("t1"), { code: 3, signal: "" });
  const [first = "", second, ...rest] = world.output("t1").split("\n");
  t.regex(first, /^shell \d+\{A\} %\{x\}$/);
  t.is(second, "${HOME} 2");
  t.true(rest.includes("HOME=/elsewhere"));
  t.false(rest.some((line) => line.startsWith("SECRET=")));
  t.true(rest.includes("allocs"), "its volume");
  t.is(rest.at(-2), join(world.folder, "allocs", "t1", "web"));
});

test("the standard input of a process ends at once, and nobody can write to it", async (t) => {
  const world = await node(t);
  const { driver } = await world.life();
  await run(driver, driverTask("t1", sh("cat; echo over; readlink /proc/$$/fd/0")));
  t.is((await driver.wait("t1"))?.code, 0);
  t.is(world.output("t1"), "over\n/dev/null\n");
});

test("an agent that follows a killed one recovers a process with its pid, and stops it by its signal", async (t) => {
  const world = await node(t);
  const before = await world.life();
  const spec = { ...sh("trap 'echo bye; exit 7' INT; echo up; while :; do sleep 0.1; done"), stopSignal: "INT" };
  const pid = await run(
    before.driver,
    driverTask("t1", { ...spec, stopGracePeriod: Duration.create({ seconds: 60 }) }),
  );
  t.true(isAlive(pid));
  await until("it is up", () => world.output("t1") === "up\n");
  before.driver.close();
  before.plugin.release();
  const after = await world.life();
  t.deepEqual(await after.driver.find("t1"), { kind: "running", pid });
  t.is((await after.driver.stop("t1"))?.code, 7);
  t.is(world.output("t1"), "up\nbye\n");
  t.false(isAlive(pid));
  t.deepEqual(await after.driver.find("never"), { kind: "absent" });
  await after.driver.remove("t1");
  t.deepEqual(readdirSync(join(world.folder, "allocs")), []);
  await after.plugin.end();
});

test("an invalid process is reported under its driver's name, and nothing of it is left", async (t) => {
  const world = await node(t);
  const { driver } = await world.life();
  const refusals: readonly (readonly [Partial<ExecSpec>, RegExp])[] = [
    [{ command: "no-such-command" }, /^exec: .*cannot find no-such-command in the task's PATH/],
    [{ command: "/etc/passwd" }, /^exec: .*\/etc\/passwd is not an executable file/],
    [{}, /^exec: .*command/],
    [{ command: "true", dir: "/no/such" }, /the directory \/no\/such does not exist/],
    [{ command: "true", user: "nobody-of-that-name" }, /there is no user/],
    [{ command: "true", stopSignal: "SIGNONE" }, /^exec: invalid stop signal "SIGNONE"/],
    [{ command: "true", env: ["A={{.Task.Colour}}"] }, /^exec: the template of A cannot be expanded: .*Colour/],
    [{ command: "true", env: ["A"] }, /expected NAME=value/],
  ];
  for (const [at, [spec, reason]] of refusals.entries()) {
    const error = await t.throwsAsync(run(driver, driverTask(`t${at}`, spec)));
    t.regex(error?.message ?? "", reason);
    await driver.remove(`t${at}`);
  }
  t.deepEqual(existsSync(join(world.folder, "allocs")) ? readdirSync(join(world.folder, "allocs")) : [], []);
});

test("the short form of a driver's configuration omits unset fields", (t) => {
  const spec = execAsDriver(ExecSpec.create({ command: "sleep", args: ["${x}"], dir: "/srv", user: "me" }));
  t.deepEqual(JSON.parse(spec.config), { command: "sleep", args: ["$${x}"], work_dir: "/srv" });
  t.is(spec.user, "me");
  t.is(execAsDriver(ExecSpec.create({ command: "ls" })).config, '{"command":"ls"}');
});
