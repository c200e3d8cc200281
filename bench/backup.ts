/** Backups of a busy manager with running tasks: how long one takes, and how long a write waits meanwhile and without one. */
import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { connectUnix } from "../edges/grpc/client.ts";
import { Annotations, ConfigSpec, ControlService, CreateConfigRequest } from "../proto/gen/messages.ts";
import type { RpcChannel } from "../runtime/ports/rpc.ts";
import { Generator } from "./generator.ts";
import { agentsOf } from "./load.ts";
import { startMuster, until } from "./peers.ts";
import { percentile, seconds, table } from "./table.ts";

const run = promisify(execFile);
/** Between a write and the next, in milliseconds: some hundred writes a second would be another load than that of one client. */
const writePauseMs = 5;

/** Milliseconds that each of a client's writes took, until stopped. */
function writes(channel: RpcChannel, prefix: string): { stop(): Promise<readonly number[]> } {
  const waits: number[] = [];
  let isStopped = false;
  const writing = (async () => {
    for (let n = 0; !isStopped; n += 1) {
      const spec = ConfigSpec.create({
        annotations: Annotations.create({ name: `${prefix}${n}` }),
        data: Buffer.from("x"),
      });
      const begun = performance.now();
      await channel.unary(ControlService.methods.CreateConfig, CreateConfigRequest.create({ spec }), {
        timeoutMs: 10_000,
      });
      waits.push(performance.now() - begun);
      await new Promise((resolve) => setTimeout(resolve, writePauseMs));
    }
  })();
  return {
    stop: async () => {
      isStopped = true;
      await writing;
      return waits;
    },
  };
}

export async function backupTable(short: boolean): Promise<string> {
  const load = short ? { agents: 20, tasks: 200, batch: true } : { agents: 200, tasks: 20_000, batch: true };
  const folder = mkdtempSync(join(tmpdir(), "muster-bench-backup-"));
  const manager = await startMuster();
  const agents = new Generator(manager, agentsOf(load));
  const rows: (readonly string[])[] = [];
  try {
    await agents.join();
    manager.createService("load", load.tasks);
    await until("running tasks", () => agents.sum("running") >= load.tasks, 300_000);
    const passphrase = join(folder, "passphrase");
    writeFileSync(passphrase, "correct horse battery staple\n");
    const [program = "", ...host] = manager.commandLine;
    const muster = (...args: readonly string[]) => run(program, args, { timeout: 300_000 });
    const measured = async (what: string, work: () => Promise<unknown>, file?: string): Promise<void> => {
      const channel = await connectUnix((host[1] ?? "").replace("unix://", ""));
      const writing = writes(channel, `${what.replaceAll(/\W+/g, "-")}-${Date.now()}-`);
      const begun = performance.now();
      try {
        await work();
      } finally {
        const took = performance.now() - begun;
        const waits = await writing.stop();
        channel.close();
        const size = file !== undefined && existsSync(file) ? `${(statSync(file).size / 2 ** 20).toFixed(1)} MiB` : "";
        const shown = [percentile(waits, 0.5), percentile(waits, 0.99), Math.max(...waits)];
        rows.push([what, seconds(took / 1_000), size, ...shown.map((ms) => `${ms.toFixed(1)} ms`)]);
      }
    };
    await measured("warming up", () => new Promise((resolve) => setTimeout(resolve, 3_000)));
    rows.pop();
    await measured("no backup", () => new Promise((resolve) => setTimeout(resolve, 5_000)));
    const file = join(folder, "state.backup");
    const keys = ["--passphrase-file", passphrase];
    await measured("muster backup", () => muster(...host, "backup", "-o", file, ...keys), file);
    const whole = join(folder, "history.backup");
    await measured(
      "muster backup --history",
      () => muster(...host, "backup", "-o", whole, "--history", ...keys),
      whole,
    );
    for (const [what, args] of [
      ["muster backup --verify", ["backup", "--verify", file]],
      ["muster restore", ["restore", file, "--data-dir", join(folder, "restored")]],
      ["muster restore, with history", ["restore", whole, "--data-dir", join(folder, "restored-history")]],
    ] as const) {
      const begun = performance.now();
      await muster(...args, ...keys);
      rows.push([what, seconds((performance.now() - begun) / 1_000), "", "", "", ""]);
    }
  } finally {
    await agents.end();
    await manager.stop();
    rmSync(folder, { recursive: true, force: true });
  }
  const columns = ["", "time", "file", "write p50", "write p99", "longest write"];
  return table(`Backups: ${load.tasks.toLocaleString("en")} running tasks on ${load.agents} agents`, columns, rows);
}
