/** The start of a manager with its own NATS on the log of a full cluster: until it answers, and until it accepts a change. */
import { connectUnix } from "../edges/grpc/client.ts";
import { Annotations, ConfigSpec, ControlService, CreateConfigRequest } from "../proto/gen/messages.ts";
import { Generator } from "./generator.ts";
import { agentsOf } from "./load.ts";
import { startMuster, until } from "./peers.ts";
import { percentile, seconds, table } from "./table.ts";

/** For the log to rest before the next start, in milliseconds: agents connect again, and their reports are written. */
const restMs = 10_000;

export async function managerStartTable(short: boolean): Promise<string> {
  const load = short ? { agents: 20, tasks: 200, batch: true } : { agents: 100, tasks: 10_000, batch: true };
  const times = short ? 1 : 5;
  const manager = await startMuster();
  const agents = new Generator(manager, agentsOf(load));
  const rows: (readonly string[])[] = [];
  try {
    await agents.join();
    manager.createService("load", load.tasks);
    await until("running tasks", () => agents.sum("running") >= load.tasks, 300_000);
    const socket = (manager.commandLine[2] ?? "").replace("unix://", "");
    let created = 0;
    const change = async (): Promise<void> => {
      const channel = await connectUnix(socket);
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
      const [serving, changed]: [number[], number[]] = [[], []];
      for (let turn = 0; turn < times; turn += 1) {
        await new Promise((resolve) => setTimeout(resolve, short ? 500 : restMs));
        const answered = await manager.restart(signal);
        const begun = performance.now();
        await change();
        serving.push(answered);
        changed.push(answered + performance.now() - begun);
      }
      const shown = [serving, changed].flatMap((ms) => [percentile(ms, 0.5), Math.max(...ms)]);
      rows.push([how, ...shown.map((ms) => seconds(ms / 1_000))]);
    }
  } finally {
    await agents.end();
    await manager.stop();
  }
  const columns = ["before", "answers, median", "longest", "accepts a change, median", "longest"];
  return table(`Start of a manager: ${load.tasks.toLocaleString("en")} running tasks`, columns, rows);
}
