/**
 * SwarmKit's own agents as the load, against Muster and, in the same run, a stock dockerd manager: both managers serve the
 * agents that SwarmKit was written for. Their tasks run nothing.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SwarmKitAgents } from "../test/fixtures/swarmkit-agents.ts";
import { peersMissing } from "../test/interop/go/peers.ts";
import { Generator } from "./generator.ts";
import { hasDockerd, startDockerd, startMuster, until, type Peer } from "./peers.ts";
import { mebibytes, seconds, table } from "./table.ts";

interface Load {
  readonly agents: number;
  readonly tasks: number;
  /** Seconds for which the agents idle before they get tasks; 0: not measured. */
  readonly idleSeconds: number;
}

const timeoutMs = 300_000;
/** Nodes without tasks whose heartbeats are timed, in a separate process (`Generator`). */
const probes = 20;
/** As for the simulated agents: real nodes are separate machines. */
const nice = 10;

async function measure(peer: Peer, { agents: count, tasks, idleSeconds }: Load): Promise<string[]> {
  const stateDir = mkdtempSync(join(tmpdir(), "muster-bench-agents-"));
  const address = `${peer.host}:${peer.port}`;
  const token = peer.workerToken();
  const memoryBefore = peer.memory("VmRSS");
  const joinFrom = performance.now();
  const agents = new SwarmKitAgents({ address, token, count, stateDir, nice });
  let probe: Generator | null = null;
  try {
    await until(`${count} of SwarmKit's agents at ${peer.name}`, () => agents.allReady, timeoutMs);
    const joinSeconds = (performance.now() - joinFrom) / 1_000;
    let idle = ["", ""];
    if (idleSeconds > 0) {
      await new Promise((resolve) => setTimeout(resolve, 2_000));
      const cpu = peer.cpu();
      await new Promise((resolve) => setTimeout(resolve, idleSeconds * 1_000));
      const share = (peer.cpu() - cpu) / idleSeconds;
      const bytes = ((peer.memory("VmRSS") - memoryBefore) * 2 ** 20) / count;
      idle = [`${(share * 100).toFixed(1)} %`, `${Math.round(bytes / 1_000)} kB`];
    }
    probe = new Generator(peer, [["--probe", `--agents=${probes}`]]);
    await probe.join();
    probe.tell("load");
    const cpuBefore = peer.cpu();
    const createdAt = performance.now();
    const name = `swarmkit-${count}-${tasks}`;
    peer.createService(name, tasks);
    await until(
      `${tasks} running tasks at ${peer.name}`,
      async () => agents.allReady && (await peer.running(name)) >= tasks,
      timeoutMs,
    );
    const runSeconds = (performance.now() - createdAt) / 1_000;
    const cpuSeconds = peer.cpu() - cpuBefore;
    const memory = peer.memory("VmHWM");
    await probe.end();
    return [
      `${count} agents, ${tasks} tasks`,
      peer.name,
      seconds(joinSeconds),
      ...idle,
      seconds(runSeconds),
      seconds(cpuSeconds),
      `${probe.heartbeatP99Ms.toFixed(0)} ms`,
      mebibytes(memory),
    ];
  } finally {
    await Promise.all([probe?.end(), agents.end()]);
    rmSync(stateDir, { recursive: true, force: true });
  }
}

export async function swarmkitTable(short: boolean): Promise<string> {
  const missing = peersMissing("swarmkit-agents");
  if (missing !== null) return `\nThe table of SwarmKit's own agents ${missing}.\n`;
  const loads: readonly Load[] = short
    ? [{ agents: 10, tasks: 50, idleSeconds: 0 }]
    : [
        { agents: 100, tasks: 2_000, idleSeconds: 0 },
        { agents: 1_000, tasks: 10_000, idleSeconds: 20 },
      ];
  const rows: string[][] = [];
  for (const load of loads) {
    for (const start of hasDockerd() ? [startMuster, startDockerd] : [startMuster]) {
      const peer = await start();
      try {
        rows.push(await measure(peer, load));
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
    "peak memory",
  ];
  return table("Load: SwarmKit's own agents (manager with its NATS)", columns, rows);
}
