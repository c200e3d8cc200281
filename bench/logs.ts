/**
 * Task output from one node: an agent reads it from its files and sends it over mutual TLS to its manager, which delivers it to
 * subscribers at that manager or, over the bus, at another. All on one machine, so all processes share its cores.
 */
import { connectUnix } from "../edges/grpc/client.ts";
import { LogSelector, LogsService, LogSubscriptionOptions, SubscribeLogsRequest } from "../proto/gen/messages.ts";
import { Cluster, type Manager } from "./cluster.ts";
import { until } from "./peers.ts";
import { cpuSeconds, memoryMiB } from "./processes.ts";
import { mebibytes, table } from "./table.ts";

const lineBytes = 100;
const runs = 3;

interface Measured {
  readonly bytes: number;
  readonly lines: number;
  readonly ms: number;
  readonly managerCpu: number;
  readonly agentCpu: number;
}

async function read(manager: Manager, pids: { readonly managers: readonly number[]; readonly agent: number }) {
  const channel = await connectUnix(manager.socket);
  const before = { managers: cpuSeconds(pids.managers), agent: cpuSeconds([pids.agent]) };
  const startedAt = performance.now();
  const selector = LogSelector.create({ serviceIds: [await manager.muster("service", "ls", "-q")] });
  const request = SubscribeLogsRequest.create({ selector, options: LogSubscriptionOptions.create({}) });
  let bytes = 0;
  let lines = 0;
  let firstAt = 0;
  await new Promise<void>((resolve, reject) => {
    channel.serverStream(LogsService.methods.SubscribeLogs, request, {
      onMessage: ({ messages }) => {
        firstAt ||= performance.now();
        lines += messages.length;
        for (const { data } of messages) bytes += data.length;
      },
      onEnd: (error) => (error === null ? resolve() : reject(error)),
    });
  });
  const ms = performance.now() - (firstAt || startedAt);
  channel.close();
  const managerCpu = cpuSeconds(pids.managers) - before.managers;
  return { bytes, lines, ms, managerCpu, agentCpu: cpuSeconds([pids.agent]) - before.agent } satisfies Measured;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

export async function logsTable(short: boolean): Promise<string> {
  const [tasks, linesEach] = short ? [2, 5_000] : [4, 60_000];
  const cluster = new Cluster();
  try {
    const nats = await cluster.nats();
    const near = await cluster.manager(nats);
    const other = await cluster.manager(nats, near);
    const agent = await cluster.agent(near, "node1");
    // Each line with its end; awk writes ten million lines a second.
    const script = `awk 'BEGIN { for (i = 0; i < ${linesEach}; i++) printf "%0${lineBytes - 1}d\\n", i }'; sleep 1000`;
    await near.muster(
      "service",
      "create",
      "-d",
      "--name",
      "talk",
      "--driver",
      "exec",
      `--replicas=${tasks}`,
      "sh",
      "-c",
      script,
    );
    await until("all output to be written", async () => {
      const text = await near.muster("service", "logs", "-n1", "--raw", "talk");
      const last = String(linesEach - 1).padStart(lineBytes - 1, "0");
      return text.split("\n").filter((line) => line === last).length === tasks;
    });
    const managers = [near, other].map(({ process: { child } }) => child.pid ?? 0);
    const pids = { managers, agent: agent.process.child.pid ?? 0 };
    const rows: string[][] = [];
    for (const [where, manager] of [
      ["at the node's manager", near],
      ["at another, over the bus", other],
    ] as const) {
      const measured: Measured[] = [];
      for (let run = 0; run < (short ? 2 : runs); run += 1) measured.push(await read(manager, pids));
      const wanted = tasks * linesEach;
      if (measured.some(({ lines }) => lines !== wanted)) throw new Error(`not ${wanted} lines in each run`);
      const megabytes = (measured[0]?.bytes ?? 0) / 1e6;
      const ms = median(measured.map((each) => each.ms));
      const per100 = (cpu: readonly number[]): string => `${((median(cpu) / megabytes) * 100).toFixed(2)} s`;
      rows.push([
        where,
        `${(megabytes / (ms / 1_000)).toFixed(1)} MB/s, ${Math.round(wanted / ms)}k lines/s`,
        per100(measured.map(({ managerCpu }) => managerCpu)),
        per100(measured.map(({ agentCpu }) => agentCpu)),
        mebibytes(memoryMiB(managers, "VmHWM") / managers.length),
      ]);
    }
    const title = `Output of ${tasks} tasks of one node, ${tasks * linesEach} lines of ${lineBytes} B, median of ${short ? 2 : runs}`;
    const columns = [
      "read at",
      "throughput",
      "managers' CPU per 100 MB",
      "agent's CPU per 100 MB",
      "peak memory of a manager",
    ];
    return table(title, columns, rows);
  } finally {
    await cluster.end();
  }
}
