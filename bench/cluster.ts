/** Real managers and agents for the failover table: each in its own folder on loopback; `end` terminates all. */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { connectUnix } from "../edges/grpc/client.ts";
import type { MethodDescriptor } from "../proto/codec.ts";
import { startNatsServer } from "../runtime/nats/server.ts";
import { createTelemetry } from "../runtime/telemetry/telemetry.ts";
import { until } from "./peers.ts";
import { freePort } from "../test/fixtures/ports.ts";

/** Benchmark tasks write into folders of the user that runs them. */
const asRoot = process.getuid?.() === 0 ? ["--allow-root", "--task-user", "root"] : [];

const program = fileURLToPath(new URL("../bin/muster", import.meta.url));
const run = promisify(execFile);

export interface Manager {
  readonly process: Spawned;
  readonly address: string;
  /** Path of its control socket. */
  readonly socket: string;
  ask<Request, Response>(method: MethodDescriptor<Request, Response>, request: Request): Promise<Response>;
  muster(...args: string[]): Promise<string>;
}

interface Agent {
  readonly process: Spawned;
  /** Ids of its sessions so far. */
  sessions(): string[];
  /** Pids of its tasks' commands. */
  taskPids(): number[];
}

/** Pids of processes with a working directory below the folder or with its path on their command line, except this process. */
function pidsOf(folder: string): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      if (pid === process.pid) return false;
      try {
        return (
          readlinkSync(`/proc/${pid}/cwd`).startsWith(folder) ||
          readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(folder)
        );
      } catch {
        return false;
      }
    });
}

export function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has exited already.
  }
}

class Spawned {
  readonly child: ChildProcess;
  output = "";

  constructor(args: readonly string[]) {
    this.child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [this.child.stdout, this.child.stderr])
      stream?.on("data", (chunk: Buffer) => (this.output += chunk.toString()));
  }

  get isRunning(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    if (!this.isRunning) return;
    const exit = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill("SIGCONT");
    this.child.kill(signal);
    const force = setTimeout(() => this.child.kill("SIGKILL"), 15_000);
    await exit;
    clearTimeout(force);
  }
}

export class Cluster {
  /** Run in reverse order. */
  readonly #undo: (() => Promise<void> | void)[] = [];

  #folder(name: string): string {
    const dir = mkdtempSync(join(tmpdir(), `muster-bench-${name}-`));
    this.#undo.push(() => rmSync(dir, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 }));
    return dir;
  }

  #spawn(dir: string, args: readonly string[]): Spawned {
    const spawned = new Spawned(args);
    this.#undo.push(async () => {
      await spawned.end("SIGTERM");
      // A killed process leaves its nats-server or tasks behind.
      await until(`the exit of all processes in ${dir}`, () => {
        const left = pidsOf(dir);
        for (const pid of left) kill(pid);
        return left.length === 0;
      });
    });
    return spawned;
  }

  /** Starts a nats-server outside of any manager; returns its URL, with user and password. */
  async nats(): Promise<string> {
    const dataDir = this.#folder("nats");
    const telemetry = await createTelemetry({ service: "bench", level: "silent", otlpEndpoint: undefined });
    const server = await startNatsServer({ dataDir, logFile: join(dataDir, "nats.log"), telemetry });
    this.#undo.push(() => server.stop());
    return server.url.replace("//", `//${server.user}:${server.pass}@`);
  }

  /** Default settings. Without `nats` it runs its own nats-server; on an existing one it joins `first`, if given. */
  async manager(nats?: string, first?: Manager): Promise<Manager> {
    const dir = this.#folder("manager");
    const socket = join(dir, "control.sock");
    const address = `127.0.0.1:${await freePort()}`;
    const args = ["manager", "--data-dir", dir, "--listen", address, "--advertise", "127.0.0.1"];
    if (first !== undefined) args.push("--join", first.address, "--token", await first.muster("token", "manager"));
    const spawned = this.#spawn(dir, nats === undefined ? args : [...args, "--nats", nats]);
    const muster = async (...verb: string[]): Promise<string> =>
      (await run(program, ["--host", `unix://${socket}`, ...verb], { timeout: 60_000 })).stdout.trim();
    await until("the manager's start", async () => {
      if (!spawned.isRunning) throw new Error(spawned.output);
      return await muster("ca").then(
        (text) => text.startsWith("-----BEGIN"),
        () => false,
      );
    });
    return {
      process: spawned,
      address,
      socket,
      muster,
      ask: async (method, request) => {
        const channel = await connectUnix(socket);
        try {
          return await channel.unary(method, request, { timeoutMs: 5_000 });
        } finally {
          channel.close();
        }
      },
    };
  }

  /** Joins `manager`; resolves when it has its first session. */
  async agent(manager: Manager, hostname: string): Promise<Agent> {
    const dir = this.#folder("agent");
    const token = await manager.muster("token", "worker");
    const where = ["--join", manager.address, "--token", token, "--data-dir", dir, "--hostname", hostname, ...asRoot];
    const spawned = this.#spawn(dir, ["agent", ...where]);
    const sessions = (): string[] =>
      spawned.output
        .split("\n")
        .filter((line) => line.includes('"the node established a session"'))
        .map((line) => (JSON.parse(line) as { session: string }).session);
    await until("the agent's first session", () => {
      if (!spawned.isRunning) throw new Error(spawned.output);
      return sessions().length > 0;
    });
    return {
      process: spawned,
      sessions,
      taskPids: () => pidsOf(`${dir}/`).filter((pid) => commandOf(pid).endsWith("sleep")),
    };
  }

  /** Terminates everything, even if a part fails; throws in that case. */
  async end(): Promise<void> {
    const errors: unknown[] = [];
    for (const undo of this.#undo.toReversed()) {
      try {
        await undo();
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.length > 0) throw new AggregateError(errors, "the cluster could not be terminated");
  }
}

/** The program of a process, as it was called; empty if it has exited. */
function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0")[0] ?? "";
  } catch {
    return "";
  }
}
