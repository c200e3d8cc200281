/**
 * A plugin whose handshake is complete: its process, connection and log.
 *
 * Stages: running → stopping (shutdown requested) → exited; or released: it continues without us.
 *
 * P1: each listener is notified of the exit exactly once.
 * P2: once the process has exited, nothing of ours is left: connection, timers, log, and its socket.
 * P3: a plugin that breaks its connection but keeps running is killed: nobody can talk to it any more.
 * P4: only the plugin's own process is killed: its tasks are its children and continue.
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
import type { DriverClient, PluginAddress, RunningPlugin } from "../../../runtime/ports/plugins.ts";
import type { Logger } from "../../../runtime/ports/index.ts";
import { RpcError, Status, type DuplexChannel } from "../../../runtime/ports/rpc.ts";
import { driverClient } from "./driver-client.ts";
import type { LogTail } from "./log-tail.ts";

/** Timeout of the answer to Shutdown, which often never comes (reference §0.3). */
const farewellTimeoutMs = 1_000;
/** The service name for the health of a plugin as a whole. */
const healthServiceName = "plugin";

/** A plugin's process: our child, or one that an earlier agent started. */
export interface PluginProcess {
  readonly pid: number;
  /** Calls back once, with text such as `exit code 1`; at once if it has already exited. */
  onExit(listener: (how: string) => void): void;
  kill(): void;
  /** Stops watching. */
  release(): void;
}

interface RunningParts {
  readonly name: string;
  readonly process: PluginProcess;
  readonly channel: DuplexChannel;
  readonly log: Logger;
  readonly tail: LogTail;
  readonly address: PluginAddress | null;
  /** Its socket, which is removed when it exits; null if it listens on a port. */
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
    // P3. Usually it has just died.
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

  /** Copies the plugin's output to our log; not every plugin offers it. */
  followOutput(): void {
    const { channel, log, name } = this.#parts;
    let lines = 0;
    channel.serverStream(GRPCStdioService.methods.StreamStdio, Empty.create(), {
      onMessage: ({ data }) => {
        // Bounded like its log, but by count: a driver's printed output rarely matters.
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
    // The result does not matter: the process's exit decides.
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
    // Pending calls end as UNAVAILABLE when the connection ends; a connection that outlives its process is closed.
    setTimeout(() => channel.close(), danglingMs).unref();
    tail.close();
    // Nothing else in the folder: a plugin's children listen there too, and continue (P4).
    if (socket !== null) rmSync(socket, { force: true });
    for (const listener of this.#listeners.splice(0)) listener(how);
  }
}

const stdioLinesMax = 10_000;
/** Time that a plugin may outlive its connection, in milliseconds. */
const deafMs = 1_000;
/** A connection ends within this time after its process, in milliseconds; then we close it. */
const danglingMs = 250;
