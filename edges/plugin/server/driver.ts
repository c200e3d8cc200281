/**
 * The interface of a task driver: an object with `start`, and as many of the other methods as it supports. `serve.ts` turns it
 * into an executable that Muster's agent and a stock Nomad can load.
 *
 * The server keeps the table of tasks, so a driver needs none: it never sees an unknown id, a second start of a task, or a
 * call for a destroyed task. Errors that a method throws reach the user; `retryable` marks those worth a retry.
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
import type { Logger } from "../../../runtime/ports/index.ts";
import type { ConfigOf, Fields } from "./fields.ts";

export { recoverableError as retryable } from "../../../runtime/recoverable.ts";

export interface Driver<Config extends Fields = Fields, Task extends Fields = Fields> {
  /** The name used in jobs and services. */
  readonly name: string;
  /** The driver's own version, such as `0.1.0`. */
  readonly version: string;
  /** Fields of the driver's own configuration; absent: none. */
  readonly config?: Config;
  /** Fields of a task's configuration. */
  readonly task: Task;
  /** Capabilities beyond running tasks. `exec` and `sendSignals` default to true. */
  readonly capabilities?: Partial<DriverCapabilities>;

  /**
   * Receives the driver's configuration, possibly several times; without `agent` it is a trial run, which must change nothing.
   * If it throws, the driver is not used.
   */
  configure?(config: ConfigOf<Config>, agent: NomadDriverConfig | null): void | Promise<void>;
  /** Whether the driver works on this machine, and its attributes. Absent: always healthy. */
  fingerprint?(): Fingerprint | Promise<Fingerprint>;
  /** Resolves once the task runs. */
  start(task: TaskRequest<ConfigOf<Task>>): RunningTask | Promise<RunningTask>;
  /** Finds a task that an earlier process of this driver started, even if it has exited; `state` is its
   *  `RunningTask.state`. Absent: tasks do not outlive the driver's process. */
  recover?(task: TaskRequest<ConfigOf<Task>>, state: unknown): RunningTask | Promise<RunningTask>;
  createNetwork?(request: CreateNetworkRequest): Promise<CreateNetworkResponse>;
  destroyNetwork?(request: DestroyNetworkRequest): Promise<void>;
  /** Called before the process exits. Tasks continue. */
  shutdown?(): void | Promise<void>;
}

export interface Fingerprint {
  readonly health: "healthy" | "unhealthy" | "undetected";
  /** A short description, also if `healthy`. */
  readonly description: string;
  /** Added to the node's attributes. */
  readonly attributes?: Readonly<Record<string, string | number | boolean>>;
}

export interface TaskRequest<Config> {
  readonly id: string;
  /** The task's configuration for this driver. */
  readonly config: Config;
  /** Everything else: environment, resources, mounts, directories, output paths. */
  readonly task: TaskConfig;
  readonly log: Logger;
  /** Adds an event that the user sees among the task's events. */
  tell(message: string, annotations?: Readonly<Record<string, string>>): void;
}

export interface TaskExit {
  /** As in a shell: 128 + n after signal n. */
  readonly exitCode: number;
  /** 0 for a task that exited by itself. */
  readonly signal: number;
  readonly oomKilled: boolean;
  /** Why the exit status is unknown; absent or empty if it is known. */
  readonly err?: string;
}

export interface RunningTask {
  /** Plain JSON, passed to `recover` later. */
  readonly state: unknown;
  /** Milliseconds since the epoch (default: when `start` or `recover` returned). */
  readonly startedAtMs?: number;
  readonly network?: NetworkOverride;
  /** Resolves when the task has exited and nothing of it is left. Never rejects. */
  readonly exited: Promise<TaskExit>;
  /** Sends `signal` (empty: the driver's default), and kills the task after `timeoutMs`. Resolves when it has exited. */
  stop(signal: string, timeoutMs: number): Promise<void>;
  signal?(signal: string): void | Promise<void>;
  /** Takes one sample. */
  stats?(): TaskSample | Promise<TaskSample>;
  /** Runs a command in the task. */
  exec?(request: ExecRequest): ExecSession | Promise<ExecSession>;
  /** Runs a command that differs from the task; throws for what it cannot change. Absent: commands never differ. */
  execAs?(request: ExecRequest, identity: ExecIdentity): ExecSession | Promise<ExecSession>;
  /** Connects to the task's own input and output, and leaves the task running. Absent: a task's input cannot be reached. */
  attach?(request: ExecRequest, attachment: Attachment): ExecSession | Promise<ExecSession>;
  /** Frees the task's resources, after it has exited. */
  destroy?(): void | Promise<void>;
  /** Information for users who inspect the task. */
  readonly attributes?: Readonly<Record<string, string>>;
}

/** Measured values; absent ones were not measured. */
export interface TaskSample {
  /** Percent of one core: 100 is one core fully used. */
  readonly cpuPercent?: number;
  readonly cpuSystemPercent?: number;
  readonly cpuUserPercent?: number;
  /** MHz. */
  readonly cpuTicks?: number;
  readonly throttledPeriods?: number;
  readonly throttledNanoseconds?: number;
  /** In bytes, like the following fields. */
  readonly memoryRss?: number;
  readonly memoryCache?: number;
  readonly memoryUsage?: number;
  readonly memoryMaxUsage?: number;
  readonly memorySwap?: number;
  /** Per process, by pid. */
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
  /** Passes on output; false if the caller should wait for `onDrain`. With a terminal, all output is stdout. */
  readonly output: (stream: "stdout" | "stderr", bytes: Uint8Array) => boolean;
  readonly onDrain: (listener: () => void) => void;
}

export interface Attachment {
  /** Keys with which a client in a terminal detaches, such as `ctrl-p,ctrl-q`. Empty: the driver's default. */
  readonly detachKeys: string;
  /** Whether earlier output comes first. */
  readonly logs: boolean;
}

/** How a command differs from its task. Empty values are the task's. */
export interface ExecIdentity {
  /** `NAME`, `UID`, or either with `:GROUP`. Muster's agent has checked that its node's rules allow it. */
  readonly user: string;
  /** `NAME=value`, in addition to the task's variables; `NAME` removes one. */
  readonly env: readonly string[];
  /** Path in the task. */
  readonly directory: string;
  readonly privileged: boolean;
}

export interface ExecSession {
  /** Resolves when the command has exited and its output has been passed on. */
  readonly exited: Promise<TaskExit>;
  write(bytes: Uint8Array): void;
  closeInput(): void;
  resize(size: TerminalSize): void;
  kill(): void;
}
