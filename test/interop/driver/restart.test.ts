// The actors of a driver plugin and of a task over a real process: it is killed and restarted, and its task is recovered.
import { join } from "node:path";
import test from "ava";
import { DriverPluginActor, knownPlugin, type DriverPluginPorts } from "../../../actors/driver/plugin.ts";
import { DriverTaskActor, driverTaskRecord } from "../../../actors/driver/task.ts";
import type { DriverPluginNews } from "../../../machines/driver/plugin.machine.ts";
import type { DriverTaskNews } from "../../../machines/driver/task.machine.ts";
import { NomadDriverConfig } from "../../../proto/gen/nomad.ts";
import { Host } from "../../../runtime/host.ts";
import { FileDisk } from "../../../runtime/system/file-disk.ts";
import { SystemClock } from "../../../runtime/system/clock.ts";
import { SystemRandom } from "../../../runtime/system/random.ts";
import { createSimTelemetry } from "../../../runtime/sim/telemetry.ts";
import { SimRandom } from "../../../runtime/sim/random.ts";
import { SimTrace } from "../../../runtime/sim/trace.ts";
import { mockDriver, packed, pluginLab, taskConfig } from "../../fixtures/plugin-launch.ts";
import { isAlive } from "../../fixtures/processes.ts";
import { until } from "../../fixtures/until.ts";

test("a killed plugin comes back with its task, and a restarted agent finds both", async (t) => {
  const { folder, launcher } = pluginLab(t);
  const diskDir = join(folder, "disk");
  const clock = new SystemClock();
  const telemetry = createSimTelemetry({ who: "agent", random: new SimRandom("x"), trace: new SimTrace() });
  const life = async (): Promise<DriverPluginPorts> => ({
    clock,
    random: new SystemRandom(),
    telemetry,
    host: new Host({
      clock,
      telemetry,
      onCrash: (_id, error) => {
        throw error;
      },
    }),
    disk: await FileDisk.open(diskDir),
    launcher,
  });
  const start = async (ports: DriverPluginPorts, news: DriverPluginNews[]): Promise<DriverPluginActor> =>
    new DriverPluginActor(
      ports,
      {
        binary: { name: "mock", path: mockDriver, args: [], env: {}, autoMtls: false },
        config: { health: "healthy" },
        agent: NomadDriverConfig.create(),
        onNews: (one) => news.push(one),
        onFingerprint: () => {},
        onTaskEvent: () => {},
      },
      await knownPlugin(ports.disk, "mock"),
    );
  const pluginNews: DriverPluginNews[] = [];
  const taskNews: DriverTaskNews[] = [];
  const ports = await life();
  const plugin = await start(ports, pluginNews);
  await until("its health", () => plugin.isHealthy);
  t.like(plugin.description, { name: "mock", version: "0.1.0" });
  const config = taskConfig("a1/web/1", packed(plugin.description?.taskSchema ?? null, { run_for: "1h" }));
  const task = new DriverTaskActor(ports, { config, plugin, record: null, onNews: (one) => taskNews.push(one) });
  await until("the running task", () => taskNews.at(-1)?.kind === "running");

  const first = await knownPlugin(ports.disk, "mock");
  process.kill(first?.pid ?? 0, "SIGKILL");
  await until("the recovered task", () => taskNews.filter(({ kind }) => kind === "running").length === 2);
  t.true(pluginNews.some(({ state, reason }) => state === "restarting" && reason.includes("SIGKILL")));
  await until("its health", () => plugin.isHealthy);
  const second = await until("its record", () => knownPlugin(ports.disk, "mock"));
  t.not(second.pid, first?.pid);

  // The agent exits and another starts: the same process, the same task.
  task.stop();
  plugin.release();
  ports.host.stopAll();
  t.true(isAlive(second.pid));
  const later = await life();
  const again = await start(later, []);
  await until("its health", () => again.isHealthy);
  t.is((await knownPlugin(later.disk, "mock"))?.pid, second.pid);
  const record = await driverTaskRecord(later.disk, config.id);
  t.truthy(record?.handle);
  const heard: DriverTaskNews[] = [];
  const found = new DriverTaskActor(later, { config, plugin: again, record, onNews: (one) => heard.push(one) });
  await until("the task", () => heard.at(-1)?.kind === "running");
  found.stopTask("SIGTERM", 1_000);
  const exited = await until("its end", () => heard.find(({ kind }) => kind === "exited"));
  t.like(exited, { exit: { code: 143, signal: 15, err: "" } });
  found.destroy();
  await until("its destruction", () => heard.at(-1)?.kind === "destroyed");
  await again.end();
  t.false(isAlive(second.pid));
  await until("empty records", async () => (await later.disk.list("driver-")).length === 0);
  later.host.stopAll();
});
