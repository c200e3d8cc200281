/** Processes of the load generator (`bench/agents.ts`), as one: what they count is added up. */
import { spawn, type ChildProcess } from "node:child_process";
import { setPriority } from "node:os";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { FleetCounts } from "./fleet.ts";
import { until, type Peer } from "./peers.ts";

interface Line extends FleetCounts {
  readonly event: "prepared" | "joined" | "counts" | "end";
  /** Epoch, in milliseconds. */
  readonly at: number;
}

const timeoutMs = 180_000;
/**
 * Nodes are machines of their own: here they leave the processor to whichever manager wants it. What a probe waits for is
 * measured, so it yields to nobody.
 */
const yielding = 10;

class Process {
  readonly child: ChildProcess;
  last: Line | null = null;
  readonly events = new Map<Line["event"], Line>();

  constructor(peer: Peer, args: readonly string[]) {
    this.child = spawn(
      process.execPath,
      [
        fileURLToPath(new URL("agents.ts", import.meta.url)),
        `--join=${peer.host}:${peer.port}`,
        `--token=${peer.workerToken()}`,
        "--wait",
        ...args,
      ],
      { stdio: ["pipe", "pipe", "inherit"] },
    );
    if (this.child.stdout === null || this.child.pid === undefined) throw new Error("no output");
    if (!args.includes("--probe")) setPriority(this.child.pid, yielding);
    createInterface({ input: this.child.stdout }).on("line", (text) => {
      this.last = JSON.parse(text) as Line;
      this.events.set(this.last.event, this.last);
    });
  }

  async end(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const exit = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill("SIGTERM");
    await exit;
  }
}

export class Generator {
  readonly #peer: Peer;
  readonly #processes: readonly Process[];

  constructor(peer: Peer, processes: readonly (readonly string[])[]) {
    this.#peer = peer;
    this.#processes = processes.map((args) => new Process(peer, args));
  }

  /** Resolves when all have joined, with how long that took them, in seconds. Their keys are made before. */
  async join(): Promise<number> {
    await this.#all("prepared");
    const from = Date.now();
    this.tell("join");
    await this.#all("joined");
    return (Math.max(...this.#processes.map(({ events }) => events.get("joined")?.at ?? 0)) - from) / 1_000;
  }

  /** A line for each of them. */
  tell(line: string): void {
    for (const { child } of this.#processes) child.stdin?.write(`${line}\n`);
  }

  sum(count: "registered" | "running" | "statusCalls" | "errors"): number {
    return this.#processes.reduce((sum, { last }) => sum + (last?.[count] ?? 0), 0);
  }

  /** When the newest count came, in epoch milliseconds. */
  get at(): number {
    return Math.max(...this.#processes.map(({ last }) => last?.at ?? 0));
  }

  /** The highest of the processes'. */
  get heartbeatP99Ms(): number {
    return Math.max(...this.#processes.map(({ last }) => last?.heartbeatP99Ms ?? 0));
  }

  get lastError(): string {
    return this.#processes.map(({ last }) => last?.lastError ?? "").join(" ");
  }

  /** Once they have ended, the counts are the last ones. */
  async end(): Promise<void> {
    await Promise.all(this.#processes.map((process) => process.end()));
  }

  async #all(event: Line["event"]): Promise<void> {
    const have = (): boolean => this.#processes.every(({ events }) => events.has(event));
    const hasEnded = (): boolean => this.#processes.some(({ child }) => child.exitCode !== null);
    await until(`all agents ${event} at ${this.#peer.name}`, () => have() || hasEnded(), timeoutMs);
    if (!have()) throw new Error(`an agents' process ended before all had ${event} at ${this.#peer.name}`);
  }
}
