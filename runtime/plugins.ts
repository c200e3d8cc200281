/**
 * The ports of task drivers: processes beside the agent that speak Nomad's plugin protocol. `edges/plugin/host/` implements
 * them over real processes, a simulation without.
 *
 * Calls reject with RpcError; `isPluginGone` tells a plugin that died from one that said no.
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
  FingerprintResponse,
  InspectTaskResponse,
  NetworkOverride,
  PluginInfoResponse,
  SetConfigRequest,
  Spec,
  TaskConfig,
  TaskStats,
  WaitTaskResponse,
} from "../proto/gen/nomad.ts";
import { RpcError, Status, type DuplexCall, type ReceivingCall } from "./rpc.ts";

/** A plugin's executable, and how it is started. */
export interface PluginBinary {
  /** Base name of the file: what its configuration and its log lines are filed under. */
  readonly name: string;
  /** Absolute. */
  readonly path: string;
  readonly args: readonly string[];
  /** Added to the agent's own environment. */
  readonly env: Readonly<Record<string, string>>;
  /** Both sides show certificates made for this one run; such a plugin cannot be found again by a later agent. */
  readonly autoMtls: boolean;
}

/** Where a plugin that runs is found again after its host has ended. */
export interface PluginAddress {
  readonly network: "unix" | "tcp";
  /** Path of the socket, or `host:port`. */
  readonly address: string;
  readonly pid: number;
  /** When the process began, in the kernel's own count: tells it from a later one with its pid. */
  readonly startTicks: string;
  /** Where its standard error goes. */
  readonly logFile: string;
}

export interface StreamReceiver<Message> {
  onMessage(message: Message): void;
  /** Called once, never after `cancel`; null for status OK. */
  onEnd(error: RpcError | null): void;
}

export interface StartedTask {
  /** The encoded TaskHandle, as the plugin sent it. */
  readonly handle: Uint8Array;
  readonly networkOverride: NetworkOverride | null;
}

/** The Driver and BasePlugin services of one plugin. Times are milliseconds. */
export interface DriverClient {
  pluginInfo(): Promise<PluginInfoResponse>;
  /** Null: it takes no configuration. */
  configSchema(): Promise<Spec | null>;
  setConfig(request: SetConfigRequest): Promise<void>;
  /** Plugins older than Nomad 2.0.4 have neither `init` nor `shutdown`; that is no failure. */
  init(): Promise<void>;
  /** Before the plugin ends; its tasks go on. */
  shutdown(): Promise<void>;
  taskConfigSchema(): Promise<Spec | null>;
  capabilities(): Promise<CapabilitiesResponse["capabilities"]>;
  fingerprint(receiver: StreamReceiver<FingerprintResponse>): ReceivingCall;
  taskEvents(receiver: StreamReceiver<DriverTaskEvent>): ReceivingCall;
  /** A task's stream of samples; the receiver is given the newest where it does not keep up. */
  taskStats(taskId: string, intervalMs: number, receiver: StreamReceiver<TaskStats>): ReceivingCall;
  startTask(task: TaskConfig): Promise<StartedTask>;
  recoverTask(handle: Uint8Array): Promise<void>;
  /** Resolves when the task has ended; may be asked again, also after that. */
  waitTask(taskId: string): Promise<WaitTaskResponse>;
  /** Resolves when the task is dead: after `signal` and, `timeoutMs` later, a kill. Empty signal: the driver's choice. */
  stopTask(taskId: string, timeoutMs: number, signal: string): Promise<void>;
  destroyTask(taskId: string, force: boolean): Promise<void>;
  inspectTask(taskId: string): Promise<InspectTaskResponse>;
  signalTask(taskId: string, signal: string): Promise<void>;
  /** `timeout` is put in where the request has none: plugins take its absence for a fault. */
  execTask(request: ExecTaskRequest): Promise<ExecTaskResponse>;
  /** The first message written has to be `setup`. */
  execTaskStreaming(receiver: StreamReceiver<ExecTaskStreamingResponse>): DuplexCall<ExecTaskStreamingRequest>;
  createNetwork(request: CreateNetworkRequest): Promise<CreateNetworkResponse>;
  destroyNetwork(request: DestroyNetworkRequest): Promise<void>;
}

/** A plugin whose handshake is done. */
export interface RunningPlugin {
  readonly pid: number;
  /** Null for one that cannot be found again. */
  readonly address: PluginAddress | null;
  readonly driver: DriverClient;
  /** False when calls can only fail: the process is gone, or about to be. */
  readonly isConnected: boolean;
  /** Tells once that the process is gone, in words such as `exit code 1`; at once if it already is. */
  onExit(listener: (how: string) => void): void;
  /** Whether it answers its health check in time. One that has no such check is as healthy as it lives. */
  isAnswering(timeoutMs: number): Promise<boolean>;
  /** Asks it to end, waits `graceMs`, then kills it. Resolves when it is gone. Its tasks go on. */
  stop(graceMs: number): Promise<void>;
  /** Lets go of it; it goes on and may be found again. */
  release(): void;
}

export type LaunchOutcome =
  | { readonly kind: "running"; readonly plugin: RunningPlugin }
  /** Nothing of it runs any more. The reason is one sentence. */
  | { readonly kind: "failed"; readonly reason: string };

export interface PluginLauncher {
  /** Starts a plugin and shakes hands. `onSpawned` is told the pid in between. Never rejects. */
  launch(binary: PluginBinary, onSpawned: (pid: number) => void): Promise<LaunchOutcome>;
  /** Finds one again that an earlier agent started. Never rejects; one that runs and does not answer is killed. */
  reattach(name: string, address: PluginAddress): Promise<LaunchOutcome>;
}

/** True when the plugin, or the connection to it, is gone: nothing is known of what the call did. */
export function isPluginGone(error: unknown): boolean {
  return error instanceof RpcError && (error.code === Status.UNAVAILABLE || error.code === Status.CANCELLED);
}

/** The text that Go's drivers have for a task they do not know; they give it no code of its own (reference §5.3). */
const unknownTaskText = "task not found for given id";

export function isUnknownTask(error: unknown): boolean {
  return error instanceof RpcError && (error.code === Status.NOT_FOUND || error.message.includes(unknownTaskText));
}

export function unknownTask(): RpcError {
  return new RpcError(Status.UNKNOWN, unknownTaskText);
}
