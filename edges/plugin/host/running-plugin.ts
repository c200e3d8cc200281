/**
 * A plugin whose handshake is done: its process, its connection, its log.
 *
 * Stages: running → ending (asked to stop) → gone; or released: it goes on without us.
 *
 * P1: the exit is told exactly once to each listener.
 * P2: when the process is gone, nothing of ours is left: connection, timers, log, and its socket.
 * P3: a plugin that breaks its connection and lives on is killed: nobody could talk to it any more.
 * P4: of a plugin's process nothing but the process itself is killed: its tasks are its children and go on.
 */
import { rmSync } from "node:fs";
import {
  Empty,
  GRPCControllerService,
  GRPCStdioService,
  HealthCheckRequest,
  HealthCheckResponse_ServingStatus,
  HealthService,
} from "../../../proto/gen/nomad.ts";
import type { DriverClient, PluginAddress, RunningPlugin } from "../../../runtime/plugins.ts";
import type { Logger } from "../../../runtime/ports.ts";
import { RpcError, Status, type DuplexChannel } from "../../../runtime/rpc.ts";
import { driverClient } from "./driver-client.ts";
import type { LogTail } from "./log-tail.ts";

/** For the answer to Shutdown, which often never comes (reference §0.3). */
const farewellTimeoutMs = 1_000;
/** What a plugin as a whole is asked for under. */
const healthServiceName = "plugin";

/** The process behind a plugin: a child of ours, or one that an earlier agent started. */
export interface PluginProcess {
  readonly pid: number;
  /** Tells once, with words such as `exit code 1`; at once if it is gone. */
  onExit(listener: (how: string) => void): void;
  kill(): void;
  /** No longer watched. */
  release(): void;
}

export interface RunningParts {
  readonly name: string;
  readonly process: PluginProcess;
  readonly channel: DuplexChannel;
  readonly log: Logger;
  readonly tail: LogTail;
  readonly address: PluginAddress | null;
  /** Its socket, which goes with it; null: it listens on a port. */
  readonly socket: string | null;
}

export class HostedPlugin implements RunningPlugin {
  readonly pid: number;
  readonly address: PluginAddress | null;
  readonly driver: DriverClient;
  readonly #parts: RunningParts;
  readonly #listeners: ((how: string) => void)[] = [];
  #how: string | null = null;
  #isReleased = false;
  #isConnected = true;

  constructor(parts: RunningParts) {
    this.#parts = parts;
    this.pid = parts.process.pid;
    this.address = parts.address;
    this.driver = driverClient(parts.channel);
    parts.process.onExit((how) => this.#onExit(how));
    // P3. The usual reason is that it has just died.
    parts.channel.onClosed(() => {
      this.#isConnected = false;
      if (this.#how === null && !this.#isReleased) setTimeout(() => this.#kill(), deafMs).unref();
    });
  }

  get isConnected(): boolean {
    return this.#isConnected && this.#how === null && !this.#isReleased;
  }

  onExit(listener: (how: string) => void): void {
    if (this.#how === null) this.#listeners.push(listener);
    else {
      const how = this.#how;
      queueMicrotask(() => listener(how));
    }
  }

  async isAnswering(timeoutMs: number): Promise<boolean> {
    try {
      const request = HealthCheckRequest.create({ service: healthServiceName });
      const { status } = await this.#parts.channel.unary(HealthService.methods.Check, request, { timeoutMs });
      return status === HealthCheckResponse_ServingStatus.SERVING;
    } catch (error) {
      return error instanceof RpcError && error.code === Status.UNIMPLEMENTED;
    }
  }

  /** Puts into our log what the plugin prints; one that cannot say it is none the worse. */
  followOutput(): void {
    const { channel, log, name } = this.#parts;
    let lines = 0;
    channel.serverStream(GRPCStdioService.methods.StreamStdio, Empty.create(), {
      onMessage: ({ data }) => {
        // The same bound as of its log, kept by count: nobody reads a driver's print-outs.
        if ((lines += 1) <= stdioLinesMax) log.debug({ plugin: name }, Buffer.from(data).toString("utf8").trimEnd());
      },
      onEnd: () => {},
    });
  }

  async stop(graceMs: number): Promise<void> {
    if (this.#how !== null || this.#isReleased) return;
    const { channel, process } = this.#parts;
    const gone = new Promise<void>((resolve) => this.onExit(() => resolve()));
    const timeoutMs = Math.max(1, Math.min(graceMs, farewellTimeoutMs));
    const timer = setTimeout(() => process.kill(), graceMs);
    // Whatever comes of it: the process is what counts.
    await channel.unary(GRPCControllerService.methods.Shutdown, Empty.create(), { timeoutMs }).catch(() => {});
    await gone;
    clearTimeout(timer);
  }

  release(): void {
    if (this.#how !== null || this.#isReleased) return;
    this.#isReleased = true;
    const { channel, process, tail } = this.#parts;
    process.release();
    channel.close();
    tail.close();
  }

  #kill(): void {
    if (this.#how === null && !this.#isReleased) this.#parts.process.kill();
  }

  #onExit(how: string): void {
    if (this.#isReleased) return;
    this.#how = how;
    const { channel, tail, socket } = this.#parts;
    // Calls under way end as UNAVAILABLE by the connection's own end; one that outlives its process is cut.
    setTimeout(() => channel.close(), danglingMs).unref();
    tail.close();
    // Nothing else of the folder: a plugin's children listen there too, and go on (P4).
    if (socket !== null) rmSync(socket, { force: true });
    for (const listener of this.#listeners.splice(0)) listener(how);
  }
}

const stdioLinesMax = 10_000;
/** How long a plugin may outlive its connection. */
const deafMs = 1_000;
/** A connection ends within this time of its process; after it, we end it. */
const danglingMs = 250;
