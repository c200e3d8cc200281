/** The load generator's processes (`bench/agents.ts`) as one: their counts are added up. */
import { spawn, type ChildProcess } from "node:child_process";
import { setPriority } from "node:os";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { FleetCounts } from "./fleet.ts";
import { until, type Peer } from "./peers.ts";

interface Line extends FleetCounts {
  readonly event: "prepared" | "joined" | "counts" | "end";
  /** Milliseconds since the epoch. */
  readonly at: number;
}

/** For 5,000 agents on two cores. */
const timeoutMs = 600_000;
/**
 * Real nodes are separate machines: here their processes yield the CPU to the managers. A probe's delay is measured, so a probe
 * does not yield.
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

  /** Resolves when all have joined, with the time that took, in seconds. Their keys are created before. */
  async join(): Promise<number> {
    await this.#all("prepared");
    const from = Date.now();
    this.tell("join");
    await this.#all("joined");
    return (Math.max(...this.#processes.map(({ events }) => events.get("joined")?.at ?? 0)) - from) / 1_000;
  }

  /** Sends a line to each of them. */
  tell(line: string): void {
    for (const { child } of this.#processes) child.stdin?.write(`${line}\n`);
  }

  sum(count: "registered" | "registrations" | "running" | "statusCalls" | "errors"): number {
    return this.#processes.reduce((sum, { last }) => sum + (last?.[count] ?? 0), 0);
  }

  /** When the newest count was reported, in epoch milliseconds. */
  get at(): number {
    return Math.max(...this.#processes.map(({ last }) => last?.at ?? 0));
  }

  /** The maximum of the processes. */
  get heartbeatP99Ms(): number {
    return Math.max(...this.#processes.map(({ last }) => last?.heartbeatP99Ms ?? 0));
  }

  get lastError(): string {
    return this.#processes.map(({ last }) => last?.lastError ?? "").join(" ");
  }

  /** After they have exited, the counts are final. */
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
