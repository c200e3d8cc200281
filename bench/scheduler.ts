/**
 * Placing tasks, in the shapes of SwarmKit's own benchmark, 1x, 10x and 100x, and larger. Each shape runs in its own process
 * (bench/scheduling.ts) several times: the first run shows a newly started process, the median a manager that has been working
 * for a while.
 */
import { spawn } from "node:child_process";
import { cpus, loadavg } from "node:os";
import { fileURLToPath } from "node:url";
import type { Measured, Shape } from "./scheduling.ts";
import { mebibytes, table } from "./table.ts";

interface Case extends Shape {
  /** Time of SwarmKit's Go scheduler for the same shape on such a machine with two cores, in seconds. */
  readonly peerSeconds: number | null;
}

const swarmkitShape = { nodes: 1_000, network: false, services: 0 } as const;

function cases(short: boolean): readonly Case[] {
  if (short) return [{ ...swarmkitShape, nodes: 100, tasks: 1_000, runs: 2, peerSeconds: null }];
  const network = { ...swarmkitShape, network: true };
  const service = { ...swarmkitShape, services: 1 };
  return [
    { ...swarmkitShape, tasks: 1_000, runs: 60, peerSeconds: 0.16 },
    { ...swarmkitShape, tasks: 10_000, runs: 12, peerSeconds: 1.35 },
    { ...swarmkitShape, tasks: 100_000, runs: 4, peerSeconds: 13.8 },
    { ...network, tasks: 1_000, runs: 60, peerSeconds: 0.09 },
    { ...network, tasks: 10_000, runs: 12, peerSeconds: 0.95 },
    { ...network, tasks: 100_000, runs: 4, peerSeconds: 21.2 },
    { ...service, tasks: 1_000, runs: 60, peerSeconds: null },
    { ...service, tasks: 10_000, runs: 12, peerSeconds: null },
    { ...service, tasks: 100_000, runs: 4, peerSeconds: null },
    { nodes: 10_000, tasks: 100_000, network: false, services: 100, runs: 2, peerSeconds: null },
    { nodes: 100_000, tasks: 1_000_000, network: false, services: 0, runs: 1, peerSeconds: null },
    { nodes: 100_000, tasks: 1_000_000, network: false, services: 1_000, runs: 1, peerSeconds: null },
  ];
}

/** Heap limit for the largest shape: 8 GiB, less what is not heap. */
const heapMiB = 7_600;

async function measure(shape: Shape): Promise<Measured> {
  const script = fileURLToPath(new URL("scheduling.ts", import.meta.url));
  const child = spawn(process.execPath, [`--max-old-space-size=${heapMiB}`, script, JSON.stringify(shape)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  for await (const chunk of child.stdout) output += String(chunk);
  if (output === "") throw new Error(`the run of ${JSON.stringify(shape)} printed nothing`);
  return JSON.parse(output) as Measured;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0;
}

function duration(ms: number): string {
  return ms < 1_000 ? `${ms.toFixed(ms < 100 ? 1 : 0)} ms` : `${(ms / 1_000).toFixed(2)} s`;
}

function named({ nodes, tasks, network, services }: Shape): string {
  const size = `${nodes.toLocaleString("en")} nodes × ${tasks.toLocaleString("en")} tasks`;
  if (network) return `${size}, each needs a network driver that every third node has`;
  return services === 0 ? size : `${size} of ${services} service${services === 1 ? "" : "s"} with reservations`;
}

/** Tasks per node, such as "3-4"; the peer's heap distributes them as evenly. */
function spread({ fewestOnNode, mostOnNode }: Measured): string {
  return fewestOnNode === mostOnNode ? String(mostOnNode) : `${fewestOnNode}-${mostOnNode}`;
}

export async function schedulerTable(short: boolean): Promise<string> {
  const rows: string[][] = [];
  for (const each of cases(short)) {
    const { peerSeconds, ...shape } = each;
    const measured = await measure(shape);
    const wall = median(measured.wallMs);
    rows.push([
      named(shape),
      duration(wall),
      duration(measured.wallMs[0] ?? 0),
      duration(median(measured.cpuMs)),
      `${((wall * 1_000) / shape.tasks).toFixed(1)} µs`,
      spread(measured),
      mebibytes(measured.peakRssMiB),
      peerSeconds === null ? "" : `${peerSeconds} s, ${((peerSeconds * 1_000) / wall).toFixed(1)}x`,
    ]);
  }
  const columns = ["shape", "median", "first run", "CPU", "per task", "tasks on a node", "peak RSS", "SwarmKit (Go)"];
  const load = `Load average at the end: ${loadavg()[0]?.toFixed(1)} on ${cpus().length} cores.`;
  return `${table("Scheduler: from waiting tasks to assignments in the store", columns, rows)}
${load} What it costs rises with the tasks; in nodes it is linear for each service (all are judged once), not for each task.
`;
}
