/**
 * The ports of task drivers: processes beside the agent that speak Nomad's plugin protocol. `edges/plugin/host/` implements
 * them with real processes, the simulation without.
 *
 * Calls reject with RpcError; `isPluginGone` distinguishes a dead plugin from one that returned an error.
 */
import type {
  CapabilitiesResponse,
  CreateNetworkRequest,
  CreateNetworkResponse,
  DestroyNetworkRequest,
  DriverTaskEvent,
  ExecTaskRequest,
  ExecTaskResponse,
  ExecTaskStreamingRequest,
  ExecTaskStreamingResponse,
  TaskAttachment,
  TaskCommandIdentity,
  FingerprintResponse,
  InspectTaskResponse,
  NetworkOverride,
  PluginInfoResponse,
  SetConfigRequest,
  Spec,
  TaskConfig,
  TaskStats,
  WaitTaskResponse,
} from "../../proto/gen/nomad.ts";
import { RpcError, Status, type DuplexCall, type ReceivingCall } from "./rpc.ts";

/** A plugin's executable, and how to start it. */
export interface PluginBinary {
  /** Base name of the file; identifies the plugin's configuration and log lines. */
  readonly name: string;
  /** Absolute path. */
  readonly path: string;
  readonly args: readonly string[];
  /** Added to the agent's own environment. */
  readonly env: Readonly<Record<string, string>>;
  /** Both sides present certificates created for this run; a later agent cannot reattach to such a plugin. */
  readonly autoMtls: boolean;
}

/** Where a later agent finds a running plugin. */
export interface PluginAddress {
  readonly network: "unix" | "tcp";
  /** Path of the socket, or `host:port`. */
  readonly address: string;
  readonly pid: number;
  /** The process's start time in the kernel's clock ticks; distinguishes it from a later process with the same pid. */
  readonly startTicks: string;
  /** Where its standard error goes. */
  readonly logFile: string;
}

export interface StreamReceiver<Message> {
  onMessage(message: Message): void;
  /** Called once, never after `cancel`; null for status OK. */
  onEnd(error: RpcError | null): void;
}

interface StartedTask {
  /** The encoded TaskHandle, as the plugin sent it. */
  readonly handle: Uint8Array;
  readonly networkOverride: NetworkOverride | null;
}

/** The Driver and BasePlugin services of one plugin. Times are milliseconds. */
export interface DriverClient {
  pluginInfo(): Promise<PluginInfoResponse>;
  /** Null if the driver takes no configuration. */
  configSchema(): Promise<Spec | null>;
  setConfig(request: SetConfigRequest): Promise<void>;
  /** Plugins older than Nomad 2.0.4 have neither `init` nor `shutdown`; that is not an error. */
  init(): Promise<void>;
  /** Called before the plugin exits; its tasks keep running. */
  shutdown(): Promise<void>;
  taskConfigSchema(): Promise<Spec | null>;
  capabilities(): Promise<CapabilitiesResponse["capabilities"]>;
  fingerprint(receiver: StreamReceiver<FingerprintResponse>): ReceivingCall;
  taskEvents(receiver: StreamReceiver<DriverTaskEvent>): ReceivingCall;
  /** A task's stream of samples; a slow receiver gets only the newest. */
  taskStats(taskId: string, intervalMs: number, receiver: StreamReceiver<TaskStats>): ReceivingCall;
  startTask(task: TaskConfig): Promise<StartedTask>;
  recoverTask(handle: Uint8Array): Promise<void>;
  /** Resolves when the task exits; may be called repeatedly, also after the exit. */
  waitTask(taskId: string): Promise<WaitTaskResponse>;
  /** Resolves when the task is dead: after `signal` and, `timeoutMs` later, a kill. Empty signal: the driver's choice. */
  stopTask(taskId: string, timeoutMs: number, signal: string): Promise<void>;
  destroyTask(taskId: string, force: boolean): Promise<void>;
  inspectTask(taskId: string): Promise<InspectTaskResponse>;
  signalTask(taskId: string, signal: string): Promise<void>;
  /** Sets `timeout` if the request has none: plugins treat its absence as an error. */
  execTask(request: ExecTaskRequest): Promise<ExecTaskResponse>;
  /** The first message must be `setup`. */
  execTaskStreaming(receiver: StreamReceiver<ExecTaskStreamingResponse>): DuplexCall<ExecTaskStreamingRequest>;
  /** The same for a command that differs from its task. Ends with UNIMPLEMENTED if the plugin has no such commands. */
  execTaskAs(
    identity: TaskCommandIdentity,
    receiver: StreamReceiver<ExecTaskStreamingResponse>,
  ): DuplexCall<ExecTaskStreamingRequest>;
  /** The input and output of the task itself. The first message must be `setup`. Ends with UNIMPLEMENTED if the plugin cannot. */
  attachTask(
    attachment: TaskAttachment,
    receiver: StreamReceiver<ExecTaskStreamingResponse>,
  ): DuplexCall<ExecTaskStreamingRequest>;
  createNetwork(request: CreateNetworkRequest): Promise<CreateNetworkResponse>;
  destroyNetwork(request: DestroyNetworkRequest): Promise<void>;
}

/** A plugin that has completed its handshake. */
export interface RunningPlugin {
  readonly pid: number;
  /** Null if no later agent can reattach. */
  readonly address: PluginAddress | null;
  readonly driver: DriverClient;
  /** False once the process has exited or is about to: all calls fail. */
  readonly isConnected: boolean;
  /** Calls back once when the process has exited, with text such as `exit code 1`; immediately if it already has. */
  onExit(listener: (how: string) => void): void;
  /** Whether the plugin answers its health check in time. A plugin without one is healthy while its process runs. */
  isAnswering(timeoutMs: number): Promise<boolean>;
  /** Asks the plugin to exit, waits `graceMs`, then kills it. Resolves when it has exited. Its tasks keep running. */
  stop(graceMs: number): Promise<void>;
  /** Detaches from the plugin, which keeps running for a later agent to reattach to. */
  release(): void;
}

export type LaunchOutcome =
  | { readonly kind: "running"; readonly plugin: RunningPlugin }
  /** No process is left running. The reason is one sentence. */
  | { readonly kind: "failed"; readonly reason: string };

export interface PluginLauncher {
  /** Starts a plugin and performs the handshake; calls `onSpawned` with the pid in between. Never rejects. */
  launch(binary: PluginBinary, onSpawned: (pid: number) => void): Promise<LaunchOutcome>;
  /** Reattaches to a plugin that an earlier agent started. Never rejects; kills one that runs but does not answer. */
  reattach(name: string, address: PluginAddress): Promise<LaunchOutcome>;
}

/** True if the plugin or the connection to it is gone: the outcome of the call is unknown. */
export function isPluginGone(error: unknown): boolean {
  return error instanceof RpcError && (error.code === Status.UNAVAILABLE || error.code === Status.CANCELLED);
}

/** Error text of Go's drivers for an unknown task; they give it no code (reference §5.3). */
const unknownTaskText = "task not found for given id";

export function isUnknownTask(error: unknown): boolean {
  return error instanceof RpcError && (error.code === Status.NOT_FOUND || error.message.includes(unknownTaskText));
}

export function unknownTask(): RpcError {
  return new RpcError(Status.UNKNOWN, unknownTaskText);
}
