/**
 * The cost of tasks on driver plugins: concurrent starts, statistics of many tasks, and waiting for them, with the driver alone
 * and through a manager and its agent; compared with a stock Docker Engine that runs the same processes as containers.
 */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Engine } from "../drivers/docker/engine.ts";
import { createPluginLauncher } from "../edges/plugin/host/launcher.ts";
import {
  LinuxResources,
  NomadConfig,
  NomadDriverConfig,
  Resources,
  SetConfigRequest,
  TaskConfig,
  type Spec,
} from "../proto/gen/nomad.ts";
import { encodeConfig, type ConfigInput } from "../lib/hclspec/index.ts";
import type { RunningPlugin } from "../runtime/ports/plugins.ts";
import { engineMissing, startEngine } from "../test/fixtures/docker-engine.ts";
import { agentRows } from "./driver-agent.ts";
import { cpuSeconds, memoryMiB } from "./processes.ts";
import { mebibytes, seconds, table } from "./table.ts";

const memoryLimitBytes = 64 * 1024 * 1024;
const statsIntervalMs = 1_000;

interface Size {
  readonly atOnce: number;
  readonly held: number;
  readonly watchedMs: number;
}

const whole: Size = { atOnce: 100, held: 500, watchedMs: 10_000 };
const small: Size = { atOnce: 20, held: 40, watchedMs: 2_000 };

function quantile(values: readonly number[], part: number): string {
  const sorted = [...values].sort((one, other) => one - other);
  return `${Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0)} ms`;
}

function packed(spec: Spec | null, config: ConfigInput): Uint8Array {
  const outcome = spec === null ? null : encodeConfig(spec, config);
  if (outcome?.kind !== "encoded") throw new Error("the driver's schema rejects the configuration");
  return outcome.bytes;
}

/** Durations of `count` concurrent calls, in milliseconds. */
function timed(count: number, act: (at: number) => Promise<unknown>): Promise<number[]> {
  return Promise.all(
    Array.from({ length: count }, async (_, at) => {
      const begun = performance.now();
      await act(at);
      return performance.now() - begun;
    }),
  );
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Share of a core that a process uses during `ms`. */
async function share(pid: number, ms: number): Promise<string> {
  const [cpu, begun] = [cpuSeconds([pid]), performance.now()];
  await pause(ms);
  return `${(((cpuSeconds([pid]) - cpu) / (performance.now() - begun)) * 100_000).toFixed(1)} %`;
}

class ExecTasks {
  readonly plugin: RunningPlugin;
  readonly #folder: string;
  readonly #config: Uint8Array;

  constructor(plugin: RunningPlugin, folder: string, config: Uint8Array) {
    this.plugin = plugin;
    this.#folder = folder;
    this.#config = config;
  }

  start(id: string): Promise<unknown> {
    return this.plugin.driver.startTask(
      TaskConfig.create({
        id,
        name: "web",
        allocDir: this.#folder,
        msgpackDriverConfig: this.#config,
        resources: Resources.create({ linuxResources: LinuxResources.create({ memoryLimitBytes }) }),
      }),
    );
  }
}

async function execRows(size: Size): Promise<string[][]> {
  const folder = mkdtempSync(join(tmpdir(), "muster-bench-"));
  const log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
  const launcher = createPluginLauncher({
    log,
    logDir: join(folder, "log"),
    socketDir: join(folder, "s"),
    env: process.env,
  });
  const path = fileURLToPath(new URL("../bin/muster-driver-exec", import.meta.url));
  const outcome = await launcher.launch({ name: "exec", path, args: [], env: {}, autoMtls: false }, () => {});
  if (outcome.kind === "failed") throw new Error(outcome.reason);
  const { plugin } = outcome;
  const { driver, pid } = plugin;
  try {
    mkdirSync(join(folder, "web"));
    const msgpackConfig = packed(await driver.configSchema(), { state_dir: join(folder, "state") });
    const nomadConfig = NomadConfig.create({ driver: NomadDriverConfig.create() });
    await driver.setConfig(SetConfigRequest.create({ msgpackConfig, nomadConfig, pluginApiVersion: "v0.1.0" }));
    const sleep = packed(await driver.taskConfigSchema(), { command: "sleep", args: ["3600"] });
    const tasks = new ExecTasks(plugin, folder, sleep);
    await tasks.start("first");
    const begun = performance.now();
    const starts = await timed(size.atOnce, (at) => tasks.start(`once-${at}`));
    const wall = (performance.now() - begun) / 1_000;
    for (let at = size.atOnce; at < size.held; at += size.atOnce)
      await timed(Math.min(size.atOnce, size.held - at), (more) => tasks.start(`held-${at + more}`));
    const ids = [
      ...Array.from({ length: size.atOnce }, (_, at) => `once-${at}`),
      ...Array.from({ length: size.held - size.atOnce }, (_, at) => `held-${size.atOnce + at}`),
    ];
    for (const id of ids) driver.waitTask(id).catch(() => {}); // they are killed below
    await pause(500);
    const waiting = await share(pid, size.watchedMs / 2);
    let samples = 0;
    const calls = ids.map((id) =>
      driver.taskStats(id, statsIntervalMs, { onMessage: () => (samples += 1), onEnd: () => {} }),
    );
    await pause(1_500);
    samples = 0;
    const measuring = await share(pid, size.watchedMs);
    const perSecond = Math.round((samples / size.watchedMs) * 1_000);
    for (const call of calls) call.cancel();
    const memory = mebibytes(memoryMiB([pid], "VmRSS"));
    const ended = performance.now();
    await Promise.all(["first", ...ids].map((id) => driver.destroyTask(id, true)));
    return [
      [
        `exec: ${size.atOnce} concurrent starts`,
        `p50 ${quantile(starts, 0.5)}, p99 ${quantile(starts, 0.99)}; ${seconds(wall)} in total`,
      ],
      [`exec: ${size.held} tasks being waited for, CPU of the driver`, waiting],
      [
        `exec: statistics of ${size.held} tasks each second, CPU of the driver`,
        `${measuring} (${perSecond} samples/s)`,
      ],
      [`exec: memory of the driver with ${size.held} tasks`, memory],
      [`exec: ${size.held} tasks killed and destroyed together`, seconds((performance.now() - ended) / 1_000)],
    ];
  } finally {
    await plugin.stop(3_000);
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The same processes as containers, started through the engine's API in the same way. */
async function dockerRows(size: Size): Promise<string[][]> {
  const missing = engineMissing();
  if (missing !== null) return [[`dockerd: ${size.atOnce} concurrent starts`, missing]];
  const ends: (() => Promise<void>)[] = [];
  const stock = await startEngine({ teardown: (end) => void ends.push(end as () => Promise<void>) });
  try {
    const engine = new Engine(`unix://${join(stock.dir, "docker.sock")}`);
    const body = {
      Image: "bb:1",
      Cmd: ["sleep", "3600"],
      HostConfig: { NetworkMode: "none", Memory: memoryLimitBytes },
    };
    const start = async (): Promise<void> => {
      const { Id } = await engine.json<{ readonly Id: string }>("POST", "/containers/create", {
        body,
        timeoutMs: null,
      });
      await engine.json("POST", `/containers/${Id}/start`, { timeoutMs: null });
    };
    await start();
    const begun = performance.now();
    const starts = await timed(size.atOnce, start);
    const wall = (performance.now() - begun) / 1_000;
    engine.close();
    return [
      [
        `dockerd: ${size.atOnce} concurrent containers`,
        `p50 ${quantile(starts, 0.5)}, p99 ${quantile(starts, 0.99)}; ${seconds(wall)} in total`,
      ],
    ];
  } finally {
    for (const end of ends) await end();
  }
}

export async function driversTable(isShort: boolean): Promise<string> {
  const size = isShort ? small : whole;
  const rows = [
    ...(await execRows(size)),
    ...(await agentRows(size.held, size.watchedMs)),
    ...(await dockerRows({ ...size, atOnce: Math.min(size.atOnce, 20) })),
  ];
  return table("Task drivers", ["what", "cost"], rows);
}
