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

/** The agents of a load, whichever programs they are. */
interface Agents {
  /** Resolves when all have joined, with the time that took, in seconds. */
  join(): Promise<number>;
  /** Number of tasks that run, and when that was known, in epoch milliseconds. */
  running(service: string): Promise<{ readonly count: number; readonly at: number }>;
  /** Ends them, and waits for their exit. */
  end(): Promise<void>;
}

interface LoadResult {
  readonly joinSeconds: number;
  /** CPU seconds of the manager meanwhile. */
  readonly joinCpuSeconds: number;
  readonly idleCpuShare: number | null;
  readonly idleBytesPerAgent: number | null;
  /** From `service create` to all RUNNING, as the agents say; null without tasks, like the following fields. */
  readonly runSeconds: number | null;
  readonly cpuSeconds: number | null;
  /** 99th percentile of heartbeats meanwhile, of a process whose agents do nothing else. */
  readonly probeP99Ms: number | null;
  readonly memoryMiB: number;
}

const runTimeoutMs = 300_000;
/** Processes for the agents: a single one joins more slowly than the managers. */
const generatorProcesses = 2;
const probes = 20;

/** Joins the agents, lets them idle, gives them tasks, and measures the manager meanwhile. Ends the agents. */
export async function measure(
  peer: Peer,
  agents: Agents,
  load: Pick<Load, "agents" | "idleSeconds" | "tasks">,
): Promise<LoadResult> {
  const memoryBefore = peer.memory("VmRSS");
  let probe: Generator | null = null;
  try {
    const cpuAtRest = peer.cpu();
    const joinSeconds = await agents.join();
    const joinCpuSeconds = peer.cpu() - cpuAtRest;
    let idleCpuShare: number | null = null;
    let idleBytesPerAgent: number | null = null;
    if (load.idleSeconds > 0) {
      await new Promise((resolve) => setTimeout(resolve, 2_000));
      const cpu = peer.cpu();
      await new Promise((resolve) => setTimeout(resolve, load.idleSeconds * 1_000));
      idleCpuShare = (peer.cpu() - cpu) / load.idleSeconds;
      idleBytesPerAgent = ((peer.memory("VmRSS") - memoryBefore) * 2 ** 20) / load.agents;
    }
    const common = { joinSeconds, joinCpuSeconds, idleCpuShare, idleBytesPerAgent };
    if (load.tasks === 0)
      return { ...common, runSeconds: null, cpuSeconds: null, probeP99Ms: null, memoryMiB: peer.memory("VmHWM") };
    probe = new Generator(peer, [["--probe", `--agents=${probes}`]]);
    await probe.join();
    probe.tell("load");
    const cpuBefore = peer.cpu();
    const created = Date.now();
    const name = `load-${load.agents}-${load.tasks}`;
    peer.createService(name, load.tasks);
    let now = { count: 0, at: 0 };
    await until(
      `${load.tasks} running tasks at ${peer.name}`,
      async () => (now = await agents.running(name)).count >= load.tasks,
      runTimeoutMs,
    ).catch((error: Error) => {
      throw new Error(`${error.message}: ${now.count} run`);
    });
    const runSeconds = (now.at - created) / 1_000;
    const cpuSeconds = peer.cpu() - cpuBefore;
    const memoryMiB = peer.memory("VmHWM");
    // Its counts are final after its exit.
    await probe.end();
    return { ...common, runSeconds, cpuSeconds, probeP99Ms: probe.heartbeatP99Ms, memoryMiB };
  } finally {
    await Promise.all([probe?.end(), agents.end()]);
  }
}

/** The cells that every table of loads has, and their columns. */
export const loadColumns = [
  "join",
  "CPU of joins",
  "idle core",
  "idle/agent",
  "create to RUNNING",
  "CPU",
  "heartbeat p99",
  "peak memory",
];

export function loadCells(result: LoadResult): readonly string[] {
  const shown = (value: number | null, text: (value: number) => string): string => (value === null ? "" : text(value));
  return [
    seconds(result.joinSeconds),
    seconds(result.joinCpuSeconds),
    shown(result.idleCpuShare, (share) => `${(share * 100).toFixed(1)} %`),
    shown(result.idleBytesPerAgent, (bytes) => `${Math.round(bytes / 1_000)} kB`),
    shown(result.runSeconds, seconds),
    shown(result.cpuSeconds, seconds),
    shown(result.probeP99Ms, (ms) => `${ms.toFixed(0)} ms`),
    mebibytes(result.memoryMiB),
  ];
}

/** Measures each load at Muster and at a stock dockerd manager, if there is one, each freshly started. */
export async function atEachManager<Each>(
  loads: readonly Each[],
  row: (peer: Peer, load: Each) => Promise<readonly string[]>,
): Promise<readonly (readonly string[])[]> {
  const rows: (readonly string[])[] = [];
  for (const load of loads) {
    for (const start of hasDockerd() ? [() => startMuster(), startDockerd] : [() => startMuster()]) {
      const peer = await start();
      try {
        rows.push(await row(peer, load));
      } finally {
        await peer.stop();
      }
    }
  }
  return rows;
}

/** The arguments of the load generator's processes. */
export function agentsOf(load: Pick<Load, "agents" | "batch">): string[][] {
  const each = Math.ceil(load.agents / generatorProcesses);
  return Array.from({ length: generatorProcesses }, (_, index) => [
    `--agents=${Math.min(each, load.agents - index * each)}`,
    `--first=${index * each}`,
    ...(load.batch ? ["--batch"] : []),
  ]);
}

/** Simulated agents. */
export function generated(agents: Generator): Agents {
  return {
    join: () => agents.join(),
    running: () => Promise.resolve({ count: agents.sum("running"), at: agents.at }),
    end: () => agents.end(),
  };
}

/** With the heartbeats of the agents that report tasks, including their own delay, and their status calls. */
async function simulatedRow(peer: Peer, load: Load): Promise<readonly string[]> {
  const agents = new Generator(peer, agentsOf(load));
  const result = await measure(peer, generated(agents), load).catch((error: Error) => {
    throw new Error(`${error.message}, ${agents.sum("errors")} errors, last: ${agents.lastError}`);
  });
  if (load.tasks > 0) {
    const busy = [`${agents.heartbeatP99Ms.toFixed(0)} ms`, String(agents.sum("statusCalls"))];
    return [nameOf(load), peer.name, ...loadCells(result), ...busy];
  }
  if (agents.sum("registered") !== load.agents || agents.sum("errors") > 0)
    throw new Error(
      `${agents.sum("registered")} of ${load.agents} agents are left, ${agents.sum("errors")} errors: ${agents.lastError}`,
    );
  return [nameOf(load), peer.name, ...loadCells(result), "", "0"];
}

function nameOf({ agents, tasks, batch }: Load): string {
  if (tasks === 0) return `${agents} agents, idle`;
  return `${agents} agents, ${tasks} tasks, ${batch ? "batched" : "one task a call"}`;
}

export async function loadTables(loads: readonly Load[]): Promise<string> {
  const columns = ["load", "manager", ...loadColumns, "busy agents' p99", "status calls"];
  return table("Load: simulated agents (manager with its NATS)", columns, await atEachManager(loads, simulatedRow));
}
