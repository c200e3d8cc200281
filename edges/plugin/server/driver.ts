/**
 * What somebody writes who writes a task driver: an object with `start`, and as much of the rest as it can do. `serve.ts`
 * makes an executable of it that Muster's agent and a stock Nomad load.
 *
 * The server keeps the table of tasks, so a driver has none: it never sees an unknown id, a second start of a task, or a
 * call for one that was destroyed. What a method throws reaches the user; `retryable` marks what may work the next time.
 */
import type {
  CreateNetworkRequest,
  CreateNetworkResponse,
  DestroyNetworkRequest,
  DriverCapabilities,
  NetworkOverride,
  NomadDriverConfig,
  TaskConfig,
} from "../../../proto/gen/nomad.ts";
import type { Logger } from "../../../runtime/ports.ts";
import type { ConfigOf, Fields } from "./fields.ts";

export { recoverableError as retryable } from "../../../runtime/recoverable.ts";

export interface Driver<Config extends Fields = Fields, Task extends Fields = Fields> {
  /** As jobs and services name it. */
  readonly name: string;
  /** Of the driver itself, such as `0.1.0`. */
  readonly version: string;
  /** What the driver itself can be told; absent: nothing. */
  readonly config?: Config;
  /** What can be said of a task. */
  readonly task: Task;
  /** What it can do beyond running tasks. `exec` and `sendSignals` are true unless said otherwise. */
  readonly capabilities?: Partial<DriverCapabilities>;
  /** Milliseconds between two fingerprints; 30,000 unless said. */
  readonly fingerprintIntervalMs?: number;

  /**
   * Told its configuration, possibly several times; without `agent` it is a trial, which must change nothing. What it throws
   * keeps the driver from being used.
   */
  configure?(config: ConfigOf<Config>, agent: NomadDriverConfig | null): void | Promise<void>;
  /** Whether it works on this machine, and what it found there. Absent: it does. */
  fingerprint?(): Fingerprint | Promise<Fingerprint>;
  /** Resolves when the task runs. */
  start(task: TaskRequest<ConfigOf<Task>>): RunningTask | Promise<RunningTask>;
  /** Finds a task again that an earlier process of this driver started, also one that has ended; `state` is its
   *  `RunningTask.state`. Absent: tasks do not outlive the driver's process. */
  recover?(task: TaskRequest<ConfigOf<Task>>, state: unknown): RunningTask | Promise<RunningTask>;
  createNetwork?(request: CreateNetworkRequest): Promise<CreateNetworkResponse>;
  destroyNetwork?(request: DestroyNetworkRequest): Promise<void>;
  /** Before the process ends. Tasks go on. */
  shutdown?(): void | Promise<void>;
}

export interface Fingerprint {
  readonly health: "healthy" | "unhealthy" | "undetected";
  /** A few words; for `healthy` as well. */
  readonly description: string;
  /** Join the node's attributes. */
  readonly attributes?: Readonly<Record<string, string | number | boolean>>;
}

export interface TaskRequest<Config> {
  readonly id: string;
  /** The driver's own part of the configuration. */
  readonly config: Config;
  /** Everything else: environment, resources, mounts, directories, where output goes. */
  readonly task: TaskConfig;
  readonly log: Logger;
  /** Shown to the user among the task's events. */
  tell(message: string, annotations?: Readonly<Record<string, string>>): void;
}

export interface TaskExit {
  /** As a shell gives it: 128 + n after signal n. */
  readonly exitCode: number;
  /** 0 for a task that ended by itself. */
  readonly signal: number;
  readonly oomKilled: boolean;
  /** Why nobody knows how it ended; absent or empty when somebody does. */
  readonly err?: string;
}

export interface RunningTask {
  /** Plain JSON that `recover` gets back. */
  readonly state: unknown;
  /** Milliseconds since the epoch; when `start` or `recover` returned, unless said. */
  readonly startedAtMs?: number;
  readonly network?: NetworkOverride;
  /** Resolves when the task has ended and nothing of it is left. Never rejects. */
  readonly exited: Promise<TaskExit>;
  /** Ends it: `signal` (empty: the driver's own choice), `timeoutMs` later a kill. Resolves when it is dead. */
  stop(signal: string, timeoutMs: number): Promise<void>;
  signal?(signal: string): void | Promise<void>;
  /** One sample. */
  stats?(): TaskSample | Promise<TaskSample>;
  /** Runs a command in the task. */
  exec?(request: ExecRequest): ExecSession | Promise<ExecSession>;
  /** Frees what it held, after it has ended. */
  destroy?(): void | Promise<void>;
  /** For people who look at the task. */
  readonly attributes?: Readonly<Record<string, string>>;
}

/** What was measured; what is absent was not. */
export interface TaskSample {
  /** Of one core: 100 is a core used fully. */
  readonly cpuPercent?: number;
  readonly cpuSystemPercent?: number;
  readonly cpuUserPercent?: number;
  /** MHz. */
  readonly cpuTicks?: number;
  readonly throttledPeriods?: number;
  readonly throttledNanoseconds?: number;
  /** In bytes, as the others. */
  readonly memoryRss?: number;
  readonly memoryCache?: number;
  readonly memoryUsage?: number;
  readonly memoryMaxUsage?: number;
  readonly memorySwap?: number;
  /** Of each process, by pid. */
  readonly processes?: Readonly<Record<string, TaskSample>>;
}

export interface TerminalSize {
  readonly rows: number;
  readonly columns: number;
}

export interface ExecRequest {
  readonly command: readonly string[];
  /** Null: no terminal. */
  readonly terminal: TerminalSize | null;
  /** Takes output; false when it should wait for `onDrain`. With a terminal, everything is stdout. */
  readonly output: (stream: "stdout" | "stderr", bytes: Uint8Array) => boolean;
  readonly onDrain: (listener: () => void) => void;
}

export interface ExecSession {
  /** Resolves when the command has ended and its output was handed over. */
  readonly exited: Promise<TaskExit>;
  write(bytes: Uint8Array): void;
  closeInput(): void;
  resize(size: TerminalSize): void;
  kill(): void;
}
