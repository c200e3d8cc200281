/**
 * The start of a manager with its own NATS on the log of a full cluster: until it answers, accepts a change, and has all agents'
 * sessions again.
 */
import { connectUnix } from "../edges/grpc/client.ts";
import { Annotations, ConfigSpec, ControlService, CreateConfigRequest } from "../proto/gen/messages.ts";
import { Generator } from "./generator.ts";
import { agentsOf, type Load } from "./load.ts";
import { startMuster, until } from "./peers.ts";
import { mebibytes, percentile, seconds, table } from "./table.ts";

/** For the log to rest before the next start, in milliseconds: agents connect again, and their reports are written. */
const restMs = 10_000;
const resumeTimeoutMs = 120_000;

async function rowsOf(load: Pick<Load, "agents" | "tasks">, short: boolean): Promise<readonly (readonly string[])[]> {
  const times = short ? 1 : 5;
  const manager = await startMuster();
  const agents = new Generator(manager, agentsOf({ ...load, batch: true }));
  const rows: (readonly string[])[] = [];
  try {
    await agents.join();
    manager.createService("load", load.tasks);
    await until("running tasks", () => agents.sum("running") >= load.tasks, 600_000);
    let created = 0;
    const change = async (): Promise<void> => {
      const channel = await connectUnix(manager.socket);
      const spec = ConfigSpec.create({ annotations: Annotations.create({ name: `c${(created += 1)}` }) });
      const request = CreateConfigRequest.create({ spec: { ...spec, data: Buffer.from("x") } });
      try {
        await channel.unary(ControlService.methods.CreateConfig, request, { timeoutMs: 30_000 });
      } finally {
        channel.close();
      }
    };
    for (const [how, signal] of [
      ["stopped in order", "SIGTERM"],
      ["killed", "SIGKILL"],
    ] as const) {
      const [serving, changed, resumed]: [number[], number[], number[]] = [[], [], []];
      for (let turn = 0; turn < times; turn += 1) {
        await new Promise((resolve) => setTimeout(resolve, short ? 500 : restMs));
        const registrations = agents.sum("registrations");
        const answered = await manager.restart(signal);
        const begun = performance.now();
        const since = (): number => answered + performance.now() - begun;
        await change();
        changed.push(since());
        await until("the sessions", () => agents.sum("registrations") >= registrations + load.agents, resumeTimeoutMs);
        resumed.push(since());
        serving.push(answered);
      }
      const shown = [serving, changed, resumed].flatMap((ms) => [percentile(ms, 0.5), Math.max(...ms)]);
      rows.push([
        `${load.tasks.toLocaleString("en")} on ${load.agents.toLocaleString("en")}`,
        how,
        ...shown.map((ms) => seconds(ms / 1_000)),
        mebibytes(manager.memory("VmRSS")),
      ]);
    }
  } finally {
    await agents.end();
    await manager.stop();
  }
  return rows;
}

export async function managerStartTable(short: boolean): Promise<string> {
  const loads = short
    ? [{ agents: 20, tasks: 200 }]
    : [
        { agents: 100, tasks: 10_000 },
        { agents: 1_000, tasks: 20_000 },
        { agents: 1_000, tasks: 100_000 },
      ];
  const rows: (readonly string[])[] = [];
  for (const load of loads) rows.push(...(await rowsOf(load, short)));
  const columns = [
    "tasks on agents",
    "before",
    "answers, median",
    "longest",
    "accepts a change, median",
    "longest",
    "all sessions resumed, median",
    "longest",
    "memory with NATS",
  ];
  return table("Start of a manager", columns, rows);
}
