/**
 * The one process that a machine is for, under a supervisor: when it ends by itself it is started again, as systemd with
 * `Restart=always` does it. What is killed here stays down until it is started here.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, closeSync, openSync } from "node:fs";

/** What supervisors take by default, or more. */
const restartDelayMs = 1_000;

export class MachineProcess {
  readonly name: string;
  readonly #log: string;
  readonly #command: () => readonly string[];
  readonly #env: Readonly<Record<string, string>>;
  #child: ChildProcess | null = null;
  #isWanted = false;
  #timer: NodeJS.Timeout | undefined;
  /** Ends that nobody here brought about. */
  readonly ends: string[] = [];

  /** `command` is asked for at each start; its first word must become the process (as nsenter does). */
  constructor(options: {
    readonly name: string;
    readonly log: string;
    readonly command: () => readonly string[];
    readonly env: Readonly<Record<string, string>>;
  }) {
    this.name = options.name;
    this.#log = options.log;
    this.#command = options.command;
    this.#env = options.env;
  }

  get pid(): number {
    const pid = this.#child?.pid;
    if (pid === undefined) throw new Error(`${this.name} does not run`);
    return pid;
  }

  get isRunning(): boolean {
    return this.#child !== null;
  }

  start(): void {
    this.#isWanted = true;
    clearTimeout(this.#timer);
    if (this.#child !== null) return;
    const [file = "", ...args] = this.#command();
    this.note(
      `start: ${args
        .slice(-40)
        .join(" ")
        .replaceAll(/SWMTKN-\S+/g, "SWMTKN-…")}`,
    );
    const log = openSync(this.#log, "a");
    const child = spawn(file, args, { stdio: ["ignore", log, log], env: { ...process.env, ...this.#env } });
    closeSync(log);
    this.#child = child;
    child.once("error", (error) => this.note(`not started: ${error.message}`));
    child.once("exit", (code, signal) => {
      this.#child = null;
      this.note(`end: ${signal ?? `status ${code}`}`);
      if (!this.#isWanted) return;
      this.ends.push(`${this.name} ended by itself (${signal ?? `status ${code}`})`);
      this.#timer = setTimeout(() => this.start(), restartDelayMs);
    });
  }

  /** Writes a line of the run's own to the process's log. */
  note(text: string): void {
    appendFileSync(this.#log, `--- ${new Date().toISOString()} ${text}\n`);
  }

  /** It is not started again until `start`; from now on its end is wanted. */
  async end(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    this.#isWanted = false;
    clearTimeout(this.#timer);
    const child = this.#child;
    if (child === null) return;
    const ended = once(child, "exit");
    child.kill(signal);
    await ended;
  }

  /** SIGSTOP, SIGCONT: what does not end it. */
  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }
}
