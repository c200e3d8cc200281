/** The load tables: simulated agents against Muster and, in the same run, against a stock dockerd manager. */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { hasDockerd, startDockerd, startMuster, until, type Peer } from "./peers.ts";
import { mebibytes, seconds, table } from "./table.ts";

export interface Load {
  readonly agents: number;
  /** 0: the agents only join and idle. */
  readonly tasks: number;
  readonly batch: boolean;
  /** Measures an idle period of so many seconds after joining; 0: does not. */
  readonly idleSeconds: number;
}

export interface LoadResult {
  readonly joinSeconds: number;
  readonly idleCpuShare: number | null;
  readonly idleBytesPerAgent: number | null;
  /** From `service create` to all RUNNING, as the agents see it; null without tasks, as what follows. */
  readonly runSeconds: number | null;
  readonly cpuSeconds: number | null;
  /** What 99 of 100 heartbeats took at most meanwhile, the generator's own waiting included. */
  readonly heartbeatP99Ms: number | null;
  readonly memoryMiB: number;
  readonly statusCalls: number;
}

interface Line {
  readonly event: string;
  readonly at: number;
  readonly ms?: number;
  readonly registered: number;
  readonly running: number;
  readonly statusCalls: number;
  readonly heartbeatP99Ms: number;
  readonly errors: number;
  readonly lastError: string;
}

const runTimeoutMs = 180_000;

export async function measure(peer: Peer, load: Load): Promise<LoadResult> {
  const memoryBefore = peer.memory("VmRSS");
  const child = spawn(
    process.execPath,
    [
      fileURLToPath(new URL("agents.ts", import.meta.url)),
      `--join=${peer.host}:${peer.port}`,
      `--token=${peer.workerToken()}`,
      `--agents=${load.agents}`,
      ...(load.batch ? ["--batch"] : []),
    ],
    { stdio: ["pipe", "pipe", "inherit"] },
  );
  let last: Line | null = null;
  let joined: Line | null = null;
  createInterface({ input: child.stdout }).on("line", (text) => {
    last = JSON.parse(text) as Line;
    if (last.event === "joined") joined = last;
  });
  const seen = (): Line | null => last;
  try {
    await until(`${load.agents} joins at ${peer.name}`, () => joined !== null || child.exitCode !== null, runTimeoutMs);
    if (joined === null) throw new Error(`the agents could not join ${peer.name}`);
    let idleCpuShare: number | null = null;
    let idleBytesPerAgent: number | null = null;
    if (load.idleSeconds > 0) {
      await new Promise((resolve) => setTimeout(resolve, 2_000));
      const cpu = peer.cpu();
      await new Promise((resolve) => setTimeout(resolve, load.idleSeconds * 1_000));
      idleCpuShare = (peer.cpu() - cpu) / load.idleSeconds;
      idleBytesPerAgent = ((peer.memory("VmRSS") - memoryBefore) * 2 ** 20) / load.agents;
    }
    if (load.tasks === 0) {
      const line = seen();
      if (line?.registered !== load.agents || line.errors > 0)
        throw new Error(
          `${line?.registered} of ${load.agents} agents are left, ${line?.errors} errors: ${line?.lastError}`,
        );
      return {
        joinSeconds: ((joined as Line).ms ?? 0) / 1_000,
        idleCpuShare,
        idleBytesPerAgent,
        runSeconds: null,
        cpuSeconds: null,
        heartbeatP99Ms: null,
        memoryMiB: peer.memory("VmHWM"),
        statusCalls: 0,
      };
    }
    const callsBefore = seen()?.statusCalls ?? 0;
    const cpuBefore = peer.cpu();
    const created = Date.now();
    peer.createService(`load-${load.agents}-${load.tasks}`, load.tasks);
    await until(
      `${load.tasks} running tasks at ${peer.name}`,
      () => (seen()?.running ?? 0) >= load.tasks,
      runTimeoutMs,
    ).catch((error: Error) => {
      const line = seen();
      throw new Error(`${error.message}: ${line?.running} run, ${line?.errors} errors, last: ${line?.lastError}`);
    });
    const done = seen() as Line;
    return {
      joinSeconds: ((joined as Line).ms ?? 0) / 1_000,
      idleCpuShare,
      idleBytesPerAgent,
      runSeconds: (done.at - created) / 1_000,
      cpuSeconds: peer.cpu() - cpuBefore,
      heartbeatP99Ms: done.heartbeatP99Ms,
      memoryMiB: peer.memory("VmHWM"),
      statusCalls: done.statusCalls - callsBefore,
    };
  } finally {
    const exit = child.exitCode === null ? new Promise((resolve) => child.once("exit", resolve)) : Promise.resolve();
    child.kill("SIGTERM");
    await exit;
  }
}

function nameOf({ agents, tasks, batch }: Load): string {
  if (tasks === 0) return `${agents} agents, idle`;
  return `${agents} agents, ${tasks} tasks, ${batch ? "batched" : "one task a call"}`;
}

export async function loadTables(loads: readonly Load[]): Promise<string> {
  const starters = hasDockerd() ? [startMuster, startDockerd] : [startMuster];
  const rows: string[][] = [];
  for (const load of loads) {
    for (const start of starters) {
      const peer = await start();
      try {
        const result = await measure(peer, load);
        rows.push([
          nameOf(load),
          peer.name,
          seconds(result.joinSeconds),
          result.idleCpuShare === null ? "" : `${(result.idleCpuShare * 100).toFixed(1)} %`,
          result.idleBytesPerAgent === null ? "" : `${Math.round(result.idleBytesPerAgent / 1_000)} kB`,
          result.runSeconds === null ? "" : seconds(result.runSeconds),
          result.cpuSeconds === null ? "" : seconds(result.cpuSeconds),
          result.heartbeatP99Ms === null ? "" : `${result.heartbeatP99Ms.toFixed(0)} ms`,
          mebibytes(result.memoryMiB),
          String(result.statusCalls),
        ]);
      } finally {
        await peer.stop();
      }
    }
  }
  const columns = [
    "load",
    "manager",
    "join",
    "idle core",
    "idle/agent",
    "create to RUNNING",
    "CPU",
    "heartbeat p99",
    "memory (most)",
    "status calls",
  ];
  return table("Load: simulated agents (manager with its NATS)", columns, rows);
}
