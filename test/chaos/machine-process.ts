/**
 * The one process that a machine runs, under a supervisor: when it exits by itself it is restarted, as by systemd with
 * `Restart=always`. A process killed through this class stays down until `start`.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, closeSync, openSync } from "node:fs";

/** At least the default restart delay of supervisors. */
const restartDelayMs = 1_000;

export class MachineProcess {
  readonly name: string;
  readonly #log: string;
  readonly #command: () => readonly string[];
  readonly #env: Readonly<Record<string, string>>;
  #child: ChildProcess | null = null;
  #isWanted = false;
  #timer: NodeJS.Timeout | undefined;
  /** Exits that this class did not cause. */
  readonly ends: string[] = [];

  /** `command` is called for each start; its first word must become the process (as nsenter does). */
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
    if (pid === undefined) throw new Error(`${this.name} is not running`);
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
      this.ends.push(`${this.name} exited by itself (${signal ?? `status ${code}`})`);
      this.#timer = setTimeout(() => this.start(), restartDelayMs);
    });
  }

  /** Writes a line of the run itself to the process's log. */
  note(text: string): void {
    appendFileSync(this.#log, `--- ${new Date().toISOString()} ${text}\n`);
  }

  /** Prevents a restart until `start`; from now on its exit is expected. */
  async end(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    this.#isWanted = false;
    clearTimeout(this.#timer);
    const child = this.#child;
    if (child === null) return;
    const ended = once(child, "exit");
    child.kill(signal);
    await ended;
  }

  /** Sends SIGSTOP or SIGCONT: a signal that does not end it. */
  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }
}
