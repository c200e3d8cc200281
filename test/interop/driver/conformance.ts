// Our host's requirements for any driver plugin.
import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { durationOf } from "../../../proto/nomad-time.ts";
import {
  AllocatedCpuResources,
  AllocatedMemoryResources,
  AllocatedTaskResources,
  ClientTopology,
  ClientTopologyCore,
  ClientTopologySLIT,
  CreateNetworkRequest,
  ExecTaskRequest,
  ExecTaskStreamingIOOperation,
  ExecTaskStreamingRequest,
  ExecTaskStreamingRequest_Setup,
  ExecTaskStreamingRequest_TerminalSize,
  FingerprintResponse_HealthState,
  LinuxResources,
  NomadConfig,
  NomadDriverConfig,
  Resources,
  SetConfigRequest,
  TaskHandle,
  TaskState,
  type FingerprintResponse,
  type TaskConfig,
  type TaskStats,
} from "../../../proto/gen/nomad.ts";
import type { ConfigInput } from "../../../lib/hclspec/index.ts";
import {
  isPluginGone,
  isUnknownTask,
  type DriverClient,
  type PluginAddress,
  type RunningPlugin,
} from "../../../runtime/ports/plugins.ts";
import type { RpcError } from "../../../runtime/ports/rpc.ts";
import { packed, pluginLab, taskConfig, type PluginLab } from "../../fixtures/plugin-launch.ts";
import { isAlive } from "../../fixtures/processes.ts";
import { until } from "../../fixtures/until.ts";
import type { Subject } from "./subjects.ts";

const agent = NomadDriverConfig.create({
  ClientMinPort: 14_000,
  ClientMaxPort: 14_512,
  Topology: ClientTopology.create({
    nodeIds: [0],
    distances: ClientTopologySLIT.create({ dimension: 1, values: [10] }),
    cores: [ClientTopologyCore.create({ coreId: 0, guessSpeed: 2_000 })],
  }),
});

interface Driven extends PluginLab {
  readonly plugin: RunningPlugin;
  readonly driver: DriverClient;
  /** The next task, with all fields that drivers read unconditionally. */
  task(config: ConfigInput): Promise<TaskConfig>;
}

async function configure(subject: Subject, { driver }: RunningPlugin): Promise<void> {
  const msgpackConfig = packed(await driver.configSchema(), subject.config ?? {});
  const request = SetConfigRequest.create({ msgpackConfig, pluginApiVersion: "v0.1.0" });
  // A trial, then the real one.
  await driver.setConfig(request);
  await driver.setConfig(SetConfigRequest.patch(request, { nomadConfig: NomadConfig.create({ driver: agent }) }));
  await driver.init();
}

async function drive(t: ExecutionContext, subject: Subject): Promise<Driven> {
  const lab = pluginLab(t);
  const { name, path, args = [], env = {} } = subject;
  const plugin = await lab.running({ name, path, args, env });
  await configure(subject, plugin);
  let count = 0;
  return {
    ...lab,
    plugin,
    driver: plugin.driver,
    async task(config) {
      const id = `alloc-${process.pid}/web/${(count += 1)}`;
      const allocDir = join(lab.folder, "alloc");
      for (const folder of ["alloc/logs", "web/local", "web/secrets", "web/tmp"])
        mkdirSync(join(allocDir, folder), { recursive: true });
      const [stdoutPath, stderrPath] = ["stdout", "stderr"].map((stream) =>
        join(allocDir, "alloc/logs", `${count}.${stream}`),
      );
      for (const file of [stdoutPath, stderrPath]) writeFileSync(file as string, "");
      return taskConfig(id, packed(await plugin.driver.taskConfigSchema(), config), {
        allocDir,
        stdoutPath: stdoutPath as string,
        stderrPath: stderrPath as string,
        env: { NOMAD_ALLOC_DIR: join(allocDir, "alloc"), NOMAD_TASK_DIR: join(allocDir, "web/local") },
        resources: Resources.create({
          allocatedResources: AllocatedTaskResources.create({
            cpu: AllocatedCpuResources.create({ cpuShares: 100 }),
            memory: AllocatedMemoryResources.create({ memoryMb: 64 }),
          }),
          linuxResources: LinuxResources.create({ cpuShares: 100, memoryLimitBytes: 64 * 1024 * 1024 }),
        }),
      });
    },
  };
}

/** Declares the tests of one driver. */
export function conformance(subject: Subject): void {
  const { name } = subject;
  const titled = (what: string): string => `${name}: ${what}`;

  test(titled("describes itself, and fingerprints itself at once"), async (t) => {
    const { driver, plugin } = await drive(t, subject);
    const info = await driver.pluginInfo();
    t.true(info.pluginApiVersions.includes("v0.1.0"));
    t.not(info.name, "");
    t.true(await plugin.isAnswering(2_000));
    t.not(await driver.capabilities(), null);
    const first = await new Promise<FingerprintResponse>((resolve, reject) => {
      const call = driver.fingerprint({
        onMessage: (message) => {
          call.cancel();
          resolve(message);
        },
        onEnd: reject,
      });
    });
    t.is(first.health, FingerprintResponse_HealthState.HEALTHY);
  });

  test(
    titled("any number of callers can wait for a task's exit, and it is remembered until it is destroyed"),
    async (t) => {
      const { driver, task } = await drive(t, subject);
      const config = await task(subject.failing);
      const { handle } = await driver.startTask(config);
      t.true(handle.length > 0);
      const ends = await Promise.all([driver.waitTask(config.id), driver.waitTask(config.id)]);
      for (const { result, err } of ends) {
        t.like(result, { exitCode: 3, signal: 0 });
        t.is(err, "");
      }
      t.is((await driver.waitTask(config.id)).result?.exitCode, 3);
      t.is((await driver.inspectTask(config.id)).task?.state, TaskState.EXITED);
      await driver.destroyTask(config.id, false);
      t.true(isUnknownTask(await t.throwsAsync(driver.waitTask(config.id))));
    },
  );

  test(titled("a task is stopped by its signal, or killed if it ignores that"), async (t) => {
    const { driver, task } = await drive(t, subject);
    const config = await task(subject.lasting);
    await driver.startTask(config);
    const waiting = driver.waitTask(config.id);
    t.is((await driver.inspectTask(config.id)).task?.state, TaskState.RUNNING);
    await subject.receivesSignals?.(config);
    await driver.stopTask(config.id, 10_000, "SIGTERM");
    t.like((await waiting).result, subject.terminated);

    const stubborn = await task(subject.stubborn);
    await driver.startTask(stubborn);
    await new Promise((resolve) => setTimeout(resolve, 300)); // its trap is set
    const before = Date.now();
    await driver.stopTask(stubborn.id, 500, "SIGTERM");
    t.true(Date.now() - before >= 450);
    t.is((await driver.waitTask(stubborn.id)).result?.signal, 9);
  });

  test(titled("a running task is destroyed only by force"), async (t) => {
    const { driver, task } = await drive(t, subject);
    const config = await task(subject.lasting);
    await driver.startTask(config);
    await t.throwsAsync(driver.destroyTask(config.id, false), { message: /running/ });
    await driver.destroyTask(config.id, true);
    t.true(isUnknownTask(await t.throwsAsync(driver.inspectTask(config.id))));
  });

  test(titled("a task does not start twice, and an unknown task can be stopped and destroyed"), async (t) => {
    const { driver, task } = await drive(t, subject);
    const config = await task(subject.lasting);
    await driver.startTask(config);
    await t.throwsAsync(driver.startTask(config));
    await driver.stopTask("nobody", 0, "");
    await driver.destroyTask("nobody", true);
    await driver.destroyTask(config.id, true);
  });

  test(titled("a task is signalled, and an unknown signal or task is an error"), async (t) => {
    const { driver, task } = await drive(t, subject);
    const config = await task(subject.lasting);
    await driver.startTask(config);
    await t.throwsAsync(driver.signalTask(config.id, "SIGNONSENSE"));
    await t.throwsAsync(driver.signalTask("nobody", "SIGHUP"));
    await driver.signalTask(config.id, "SIGKILL");
    t.is((await driver.waitTask(config.id)).result?.signal, 9);
  });

  test(titled("commands run in a task, unary and streaming"), async (t) => {
    const { driver, task } = await drive(t, subject);
    const config = await task(subject.lasting);
    await driver.startTask(config);
    const command = ["/bin/sh", "-c", "echo hello stdout; echo hello stderr >&2; exit 43"];
    const answer = await driver.execTask(
      ExecTaskRequest.create({ taskId: config.id, command, timeout: durationOf(5_000) }),
    );
    t.is(Buffer.from(answer.stdout).toString(), "hello stdout\n");
    t.is(answer.result?.exitCode, 43);
    // Without its own timeout it gets a default.
    t.is((await driver.execTask(ExecTaskRequest.create({ taskId: config.id, command }))).result?.exitCode, 43);

    const texts = { stdout: "", stderr: "" };
    const closed = { stdout: 0, stderr: 0 };
    const exits: (number | undefined)[] = [];
    await new Promise<void>((resolve, reject) => {
      const call = driver.execTaskStreaming({
        onMessage: (message) => {
          for (const stream of ["stdout", "stderr"] as const) {
            texts[stream] += Buffer.from(message[stream]?.data ?? []).toString();
            if (message[stream]?.close === true) closed[stream] += 1;
          }
          if (message.exited) exits.push(message.result?.exitCode);
        },
        onEnd: (error: RpcError | null) => (error === null ? resolve() : reject(error)),
      });
      const script = "head -n1; echo done >&2; exit 7";
      const setup = ExecTaskStreamingRequest_Setup.create({ taskId: config.id, command: ["/bin/sh", "-c", script] });
      call.write(ExecTaskStreamingRequest.create({ setup }));
      call.write(ExecTaskStreamingRequest.create()); // a sign of life
      const data = Buffer.from("from outside\n");
      call.write(ExecTaskStreamingRequest.create({ stdin: ExecTaskStreamingIOOperation.create({ data }) }));
      call.write(ExecTaskStreamingRequest.create({ stdin: ExecTaskStreamingIOOperation.create({ close: true }) }));
    });
    t.deepEqual(texts, { stdout: "from outside\n", stderr: "done\n" });
    t.deepEqual(closed, { stdout: 1, stderr: 1 });
    t.deepEqual(exits, [7]);
    await driver.destroyTask(config.id, true);
  });

  if (subject.terminals)
    test(titled("a command gets a terminal of the requested size"), async (t) => {
      const { driver, task } = await drive(t, subject);
      const config = await task(subject.lasting);
      await driver.startTask(config);
      let text = "";
      const exits: (number | undefined)[] = [];
      const ended = Promise.withResolvers<RpcError | null>();
      const call = driver.execTaskStreaming({
        onMessage: (message) => {
          text += Buffer.from(message.stdout?.data ?? []).toString();
          if (message.stderr !== null) t.fail("a terminal has no standard error");
          if (message.exited) exits.push(message.result?.exitCode);
        },
        onEnd: ended.resolve,
      });
      const script =
        "echo out; echo err >&2; until [ \"$(stty size 2>/dev/null)\" = '40 132' ]; do sleep 0.05; done; head -n1; exit 43";
      const setup = ExecTaskStreamingRequest_Setup.create({
        taskId: config.id,
        command: ["/bin/sh", "-c", script],
        tty: true,
      });
      call.write(ExecTaskStreamingRequest.create({ setup }));
      const size = (height: number, width: number) => ExecTaskStreamingRequest_TerminalSize.create({ height, width });
      call.write(ExecTaskStreamingRequest.create({ ttySize: size(24, 80) }));
      await until("its output", () => text.includes("err\r\n"));
      call.write(ExecTaskStreamingRequest.create({ ttySize: size(40, 132) }));
      const data = Buffer.from("typed\n");
      call.write(ExecTaskStreamingRequest.create({ stdin: ExecTaskStreamingIOOperation.create({ data }) }));
      t.is(await ended.promise, null);
      // Echoed by the terminal, and printed by the command.
      t.is(text, "out\r\nerr\r\ntyped\r\ntyped\r\n");
      t.deepEqual(exits, [43]);
      await driver.destroyTask(config.id, true);
    });

  test(titled("a stream that does not begin with its setup is rejected"), async (t) => {
    const { driver } = await drive(t, subject);
    const error = await new Promise<RpcError | null>((resolve) => {
      const call = driver.execTaskStreaming({ onMessage: () => {}, onEnd: resolve });
      call.write(ExecTaskStreamingRequest.create({ stdin: ExecTaskStreamingIOOperation.create({ close: true }) }));
    });
    t.regex(error?.message ?? "", /first message should always be setup/);
  });

  test(titled("complete statistics come at the requested interval and end with the task"), async (t) => {
    const { driver, task } = await drive(t, subject);
    const config = await task(subject.lasting);
    await driver.startTask(config);
    const samples: TaskStats[] = [];
    const ended = new Promise<RpcError | null>((resolve) => {
      driver.taskStats(config.id, 200, { onMessage: (sample) => samples.push(sample), onEnd: resolve });
    });
    await until("three samples", () => samples.length >= 3);
    for (const { timestamp, aggResourceUsage } of samples) {
      t.not(timestamp, null);
      t.not(aggResourceUsage?.cpu ?? null, null);
      t.not(aggResourceUsage?.memory ?? null, null);
    }
    await driver.destroyTask(config.id, true);
    t.is(await ended, null);
  });

  test(titled("the stream of events stays open"), async (t) => {
    const { driver } = await drive(t, subject);
    let isOver = false;
    const call = driver.taskEvents({ onMessage: () => {}, onEnd: () => (isOver = true) });
    await new Promise((resolve) => setTimeout(resolve, 300));
    t.false(isOver);
    call.cancel();
  });

  test(titled("a task can be recovered by the process that runs it, and by a later one"), async (t) => {
    const { driver, plugin, task, running } = await drive(t, subject);
    const config = await task(subject.lasting);
    const { handle } = await driver.startTask(config);
    await driver.recoverTask(handle); // already recovered: nothing happens
    const waiting = driver.waitTask(config.id);
    const gone = t.throwsAsync(waiting);
    process.kill(plugin.pid, "SIGKILL");
    t.true(isPluginGone(await gone));
    await until("its end", () => !isAlive(plugin.pid));

    const { path, args = [], env = {} } = subject;
    const next = await running({ name, path, args, env });
    await configure(subject, next);
    if (subject.recovers) {
      await next.driver.recoverTask(handle);
      t.is((await next.driver.inspectTask(config.id)).task?.state, TaskState.RUNNING);
      await next.driver.stopTask(config.id, 1_000, "SIGTERM");
      t.is((await next.driver.waitTask(config.id)).result?.signal, 15);
    } else {
      await t.throwsAsync(next.driver.recoverTask(handle));
    }
    await next.driver.destroyTask(config.id, true);
    await t.throwsAsync(next.driver.recoverTask(Uint8Array.of()));
    // Written by a later version of the driver.
    const later = TaskHandle.encode(TaskHandle.patch(TaskHandle.decode(handle), { version: 1_000 }));
    await t.throwsAsync(next.driver.recoverTask(later));
  });

  test(titled("survives a killed host, keeps logging, and is found again with its tasks"), async (t) => {
    const lab = pluginLab(t);
    const { path, env = {} } = subject;
    const owner = fileURLToPath(new URL("../../fixtures/plugin-owner.ts", import.meta.url));
    const host = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", owner, lab.folder, name, path], {
      stdio: ["ignore", "pipe", "inherit"],
      env: { ...process.env, NODE_OPTIONS: "", ...env },
    });
    const address = await new Promise<PluginAddress>((resolve) => {
      host.stdout.once("data", (line: Buffer) => resolve(JSON.parse(line.toString("utf8")) as PluginAddress));
    });
    host.kill("SIGKILL");
    await new Promise((resolve) => host.once("exit", resolve));
    const again = await lab.launcher.reattach(name, address);
    t.is(again.kind, "running");
    if (again.kind !== "running") return;
    const { plugin } = again;
    await configure(subject, plugin);
    // The plugin logs its exit, although its standard error would be a broken pipe.
    const config = taskConfig("a1/web/1", packed(await plugin.driver.taskConfigSchema(), subject.failing));
    await plugin.driver.startTask(config);
    t.is((await plugin.driver.waitTask(config.id)).result?.exitCode, 3);
    await plugin.driver.destroyTask(config.id, false);
    t.true(await plugin.isAnswering(2_000));
    await plugin.stop(3_000);
    t.false(isAlive(address.pid));
  });

  test(titled("a driver that creates no networks rejects a network"), async (t) => {
    const { driver } = await drive(t, subject);
    const capabilities = await driver.capabilities();
    if (capabilities?.mustCreateNetwork === true) {
      const made = await driver.createNetwork(CreateNetworkRequest.create({ allocId: "conformance" }));
      t.not(made.isolationSpec, null);
    } else await t.throwsAsync(driver.createNetwork(CreateNetworkRequest.create({ allocId: "conformance" })));
  });

  test(titled("exits on request, also over TLS, and leaves no socket"), async (t) => {
    const lab = pluginLab(t);
    const { path, args = [], env = {} } = subject;
    for (const autoMtls of [false, true]) {
      const plugin = await lab.running({ name, path, args, env, autoMtls });
      t.true((await plugin.driver.pluginInfo()).pluginApiVersions.length > 0);
      await plugin.driver.shutdown();
      const before = Date.now();
      await plugin.stop(60_000);
      t.true(Date.now() - before < 60_000, "it had to be killed");
      t.false(isAlive(plugin.pid));
    }
  });
}
