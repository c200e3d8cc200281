/**
 * A driver for tests: its tasks are timers that fail, hang or crash the driver as configured. Their reported state is real: a
 * task continues when the driver dies, and `recover` finds it again.
 */
import { spawn } from "node:child_process";
import {
  flag,
  number,
  retryable,
  text,
  type ConfigOf,
  type Driver,
  type ExecRequest,
  type ExecSession,
  type RunningTask,
  type TaskExit,
  type TaskRequest,
} from "../../edges/plugin/server/index.ts";
import { goDurationMs } from "../../lib/go-duration.ts";

const config = {
  /** `healthy`, `unhealthy` or `undetected`. */
  health: text({ default: "healthy" }),
  /** Error that `configure` fails with. */
  refuse: text(),
  /** Where the driver's process exits silently: `configure`, `start`, `started`, `recover`, `stop`. */
  crash_at: text({ default: "" }),
  /** Where it never answers; values as in crash_at. */
  hang_at: text({ default: "" }),
  /** The process exits this long after it was configured. */
  crash_after: text(),
};

const task = {
  run_for: text({ default: "1h" }),
  exit_code: number({ default: 0 }),
  exit_signal: number({ default: 0 }),
  oom_killed: flag({ default: false }),
  /** Why the exit status is unknown. */
  exit_err: text(),
  start_delay: text({ default: "0" }),
  /** Error that the start fails with, and whether it is retryable. */
  start_error: text(),
  start_error_retryable: flag({ default: false }),
  /** Ignores the stop signal: only the kill ends it. */
  ignores_stop: flag({ default: false }),
  /** Reported as an event of the task once it runs. */
  event: text(),
  crash_at: text({ default: "" }),
  hang_at: text({ default: "" }),
};

type MockConfig = ConfigOf<typeof config>;
type MockTask = ConfigOf<typeof task>;

/** State for `recover`: the rest is in the task's configuration. */
interface MockState {
  readonly startedAtMs: number;
}

const signalNumbers: Readonly<Record<string, number>> = { SIGHUP: 1, SIGINT: 2, SIGQUIT: 3, SIGKILL: 9, SIGTERM: 15 };

/** Milliseconds. Throws for an invalid duration. */
function parseDuration(text: string): number {
  const ms = goDurationMs(text);
  if (ms === null) throw new Error(`invalid duration ${JSON.stringify(text)}: expected a value such as 1h30m`);
  return ms;
}

class MockRun implements RunningTask {
  readonly state: MockState;
  readonly startedAtMs: number;
  readonly exited: Promise<TaskExit>;
  readonly attributes = { mock: "true" };
  readonly #config: MockTask;
  readonly #pass: (place: string) => Promise<void>;
  #end!: (exit: TaskExit) => void;
  readonly #timer: NodeJS.Timeout;
  #signals = 0;

  constructor(mock: MockTask, startedAtMs: number, pass: (place: string) => Promise<void>) {
    this.#config = mock;
    this.#pass = pass;
    this.startedAtMs = startedAtMs;
    this.state = { startedAtMs };
    this.exited = new Promise((resolve) => (this.#end = resolve));
    const left = startedAtMs + parseDuration(mock.run_for) - Date.now();
    this.#timer = setTimeout(() => this.#finish(mock.exit_code, mock.exit_signal), Math.max(0, left));
  }

  #finish(exitCode: number, signal: number): void {
    clearTimeout(this.#timer);
    const { oom_killed: oomKilled, exit_err: err } = this.#config;
    this.#end({ exitCode: signal === 0 ? exitCode : 128 + signal, signal, oomKilled, err: err ?? "" });
  }

  async stop(signal: string, timeoutMs: number): Promise<void> {
    await this.#pass("stop");
    if (this.#config.ignores_stop && signal !== "SIGKILL") {
      await new Promise((resolve) => setTimeout(resolve, timeoutMs));
      this.#finish(0, 9);
      return;
    }
    this.#finish(0, signalNumbers[signal] ?? 15);
  }

  signal(signal: string): void {
    if (signalNumbers[signal] === undefined) throw new Error(`unknown signal "${signal}"`);
    this.#signals += 1;
    if (signal === "SIGKILL") this.#finish(0, 9);
  }

  stats(): { cpuPercent: number; memoryRss: number } {
    return { cpuPercent: 1, memoryRss: 1024 * (1 + this.#signals) };
  }

  /** Commands are real: the task has no process to run them in, so they run beside the driver. */
  exec({ command, terminal, output, onDrain }: ExecRequest): ExecSession {
    if (terminal !== null) throw new Error("the mock driver does not support terminals");
    const [file = "", ...args] = command;
    const child = spawn(file, args, { stdio: "pipe" });
    for (const stream of ["stdout", "stderr"] as const) {
      child[stream].on("data", (bytes: Buffer) => {
        if (output(stream, bytes)) return;
        child[stream].pause();
        onDrain(() => child[stream].resume());
      });
    }
    child.stdin.on("error", () => {}); // the command does not read its input
    const exited = new Promise<TaskExit>((resolve) => {
      child.once("error", (error) => resolve({ exitCode: -2, signal: 0, oomKilled: false, err: error.message }));
      child.once("close", (code, signal) => {
        const number = signal === null ? 0 : (signalNumbers[signal] ?? 9);
        resolve({ exitCode: code ?? 128 + number, signal: number, oomKilled: false });
      });
    });
    return {
      exited,
      write: (bytes) => void child.stdin.write(bytes),
      closeInput: () => void child.stdin.end(),
      resize: () => {},
      kill: () => void child.kill("SIGKILL"),
    };
  }
}

export class MockDriver implements Driver<typeof config, typeof task> {
  readonly name = "mock";
  readonly version = "0.1.0";
  readonly config = config;
  readonly task = task;
  #settings: MockConfig | null = null;

  /** A place where the driver, or one of its tasks, may be configured to crash or hang. */
  readonly #pass = async (place: string, mock?: MockTask): Promise<void> => {
    if (this.#settings?.crash_at === place || mock?.crash_at === place) process.kill(process.pid, "SIGKILL");
    if (this.#settings?.hang_at === place || mock?.hang_at === place) await new Promise(() => {});
  };

  async configure(settings: MockConfig): Promise<void> {
    if (settings.refuse !== null) throw new Error(settings.refuse);
    this.#settings = settings;
    await this.#pass("configure");
    if (settings.crash_after !== null) setTimeout(() => process.exit(3), parseDuration(settings.crash_after));
  }

  fingerprint(): {
    health: "healthy" | "unhealthy" | "undetected";
    description: string;
    attributes: { "driver.mock": true };
  } {
    const health = this.#settings?.health ?? "healthy";
    if (health !== "healthy" && health !== "unhealthy" && health !== "undetected")
      throw new Error(`invalid health "${health}"`);
    return { health, description: `configured as ${health}`, attributes: { "driver.mock": true } };
  }

  async start(request: TaskRequest<MockTask>): Promise<MockRun> {
    const mock = request.config;
    await this.#pass("start", mock);
    await new Promise((resolve) => setTimeout(resolve, parseDuration(mock.start_delay)));
    if (mock.start_error !== null) {
      throw mock.start_error_retryable ? retryable(mock.start_error) : new Error(mock.start_error);
    }
    const run = new MockRun(mock, Date.now(), (place) => this.#pass(place, mock));
    if (mock.event !== null) request.tell(mock.event);
    // After the answer has been sent.
    setTimeout(() => void this.#pass("started", mock), 20);
    return run;
  }

  async recover(request: TaskRequest<MockTask>, state: unknown): Promise<MockRun> {
    const mock = request.config;
    await this.#pass("recover", mock);
    const startedAtMs = (state as Partial<MockState> | null)?.startedAtMs;
    if (typeof startedAtMs !== "number") throw new Error("the handle was not created by this driver");
    return new MockRun(mock, startedAtMs, (place) => this.#pass(place, mock));
  }
}
