/** The load tables: simulated agents against Muster and, in the same run, against a stock dockerd manager. */
import { Generator } from "./generator.ts";
import { hasDockerd, startDockerd, startMuster, until, type Peer } from "./peers.ts";
import { mebibytes, seconds, table } from "./table.ts";

export interface Load {
  readonly agents: number;
  /** 0: the agents only join and idle. */
  readonly tasks: number;
  readonly batch: boolean;
  /** Seconds of a measured idle period after joining; 0: none. */
  readonly idleSeconds: number;
}

export interface LoadResult {
  readonly joinSeconds: number;
  readonly idleCpuShare: number | null;
  readonly idleBytesPerAgent: number | null;
  /** From `service create` to all RUNNING, as seen by the agents; null without tasks, like the following fields. */
  readonly runSeconds: number | null;
  readonly cpuSeconds: number | null;
  /** 99th percentile of heartbeats meanwhile, as seen by agents that report tasks, including their own delay. */
  readonly heartbeatP99Ms: number | null;
  /** The same for a process whose agents do nothing else. */
  readonly probeP99Ms: number | null;
  readonly memoryMiB: number;
  readonly statusCalls: number;
}

const runTimeoutMs = 180_000;
/** Processes for the agents: a single one joins more slowly than the managers. */
const generatorProcesses = 2;
const probes = 20;

function agentsOf(load: Load): string[][] {
  const each = Math.ceil(load.agents / generatorProcesses);
  return Array.from({ length: generatorProcesses }, (_, index) => [
    `--agents=${Math.min(each, load.agents - index * each)}`,
    `--first=${index * each}`,
    ...(load.batch ? ["--batch"] : []),
  ]);
}

export async function measure(peer: Peer, load: Load): Promise<LoadResult> {
  const memoryBefore = peer.memory("VmRSS");
  const agents = new Generator(peer, agentsOf(load));
  let probe: Generator | null = null;
  try {
    const joinSeconds = await agents.join();
    let idleCpuShare: number | null = null;
    let idleBytesPerAgent: number | null = null;
    if (load.idleSeconds > 0) {
      await new Promise((resolve) => setTimeout(resolve, 2_000));
      const cpu = peer.cpu();
      await new Promise((resolve) => setTimeout(resolve, load.idleSeconds * 1_000));
      idleCpuShare = (peer.cpu() - cpu) / load.idleSeconds;
      idleBytesPerAgent = ((peer.memory("VmRSS") - memoryBefore) * 2 ** 20) / load.agents;
    }
    const common = { joinSeconds, idleCpuShare, idleBytesPerAgent };
    if (load.tasks === 0) {
      if (agents.sum("registered") !== load.agents || agents.sum("errors") > 0)
        throw new Error(
          `${agents.sum("registered")} of ${load.agents} agents are left, ${agents.sum("errors")} errors: ${agents.lastError}`,
        );
      const none = { runSeconds: null, cpuSeconds: null, heartbeatP99Ms: null, probeP99Ms: null, statusCalls: 0 };
      return { ...common, ...none, memoryMiB: peer.memory("VmHWM") };
    }
    probe = new Generator(peer, [["--probe", `--agents=${probes}`]]);
    await probe.join();
    const callsBefore = agents.sum("statusCalls");
    const cpuBefore = peer.cpu();
    const created = Date.now();
    probe.tell("load");
    peer.createService(`load-${load.agents}-${load.tasks}`, load.tasks);
    await until(
      `${load.tasks} running tasks at ${peer.name}`,
      () => agents.sum("running") >= load.tasks,
      runTimeoutMs,
    ).catch((error: Error) => {
      const counts = `${agents.sum("running")} run, ${agents.sum("errors")} errors`;
      throw new Error(`${error.message}: ${counts}, last: ${agents.lastError}`);
    });
    const runSeconds = (agents.at - created) / 1_000;
    const cpuSeconds = peer.cpu() - cpuBefore;
    const statusCalls = agents.sum("statusCalls") - callsBefore;
    const memoryMiB = peer.memory("VmHWM");
    await Promise.all([probe.end(), agents.end()]);
    return {
      ...common,
      runSeconds,
      cpuSeconds,
      heartbeatP99Ms: agents.heartbeatP99Ms,
      probeP99Ms: probe.heartbeatP99Ms,
      memoryMiB,
      statusCalls,
    };
  } finally {
    await Promise.all([probe?.end(), agents.end()]);
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
          result.probeP99Ms === null ? "" : `${result.probeP99Ms.toFixed(0)} ms`,
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
    "busy agents' p99",
    "peak memory",
    "status calls",
  ];
  return table("Load: simulated agents (manager with its NATS)", columns, rows);
}
