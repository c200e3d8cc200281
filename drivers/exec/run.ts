/**
 * One task of the exec driver: a shell (run-file.ts) and the command below it, in a separate session.
 *
 * Stages: running → ended (its shell has exited) → swept (no process is left) → exited (reported).
 *
 * R1: `exited` resolves once, after the task's last process has exited and its cgroup was removed.
 * R2: a signal goes to the command's process; a kill goes to all processes.
 */
import { readFileSync, rmSync } from "node:fs";
import type {
  ExecIdentity,
  ExecRequest,
  ExecSession,
  RunningTask,
  TaskExit,
  TaskSample,
} from "../../edges/plugin/server/index.ts";
import type { Logger } from "../../runtime/ports/index.ts";
import { joinFiles, oomKills, removeCgroup, type TaskCgroup } from "./cgroups.ts";
import { surroundingsAs } from "./command-identity.ts";
import type { Ends } from "./ends.ts";
import { bootId, isAlive, signal, type ProcessName } from "./process.ts";
import { parseRunFacts, signalNamed, signalNumberOf, type FileWrite, type RunFacts } from "./run-file.ts";
import { openSession } from "./session.ts";
import type { CommandFrame, Surroundings } from "./surroundings.ts";
import type { Tools } from "../../linux/system-tools.ts";
import { UsageMeter } from "./usage.ts";

/** Docker's default; hosts usually name one. */
const stopSignalDefault = "SIGTERM";
/** After a kill of the command, time for its shell to write the exit code before it is killed too; milliseconds. */
const shellMsMax = 1_000;
/** Removal attempts: a cgroup stays busy for a moment after its last process. */
const cgroupTries = 20;
const cgroupTryMs = 10;
const killed = 9;

/** The state in a handle. */
export interface RunState {
  readonly leader: ProcessName;
  readonly main: ProcessName;
  readonly runFile: string;
  readonly cgroup: TaskCgroup | null;
  /** For commands run in it later. */
  readonly where: Surroundings;
  /** For those that differ from the task; null for a task that an earlier version of this driver started. */
  readonly frame: CommandFrame | null;
  /** Milliseconds since the epoch. */
  readonly startedAtMs: number;
}

interface RunOptions {
  readonly state: RunState;
  readonly tools: Tools;
  readonly ends: Ends;
  readonly log: Logger;
  /** Resolves when the shell has exited. */
  readonly ended: Promise<unknown>;
  readonly coreMhz: number;
  readonly tell: (message: string) => void;
}

export function readRunFile(path: string): RunFacts {
  try {
    return parseRunFacts(readFileSync(path, "latin1"));
  } catch {
    return { leader: null, main: null, exitCode: null };
  }
}

/** The writes by which a process joins the task. */
export function joining(cgroup: TaskCgroup | null): readonly FileWrite[] {
  return joinFiles(cgroup).map((path) => ({ value: "0", path }));
}

export async function clearCgroup(cgroup: TaskCgroup | null, log: Logger): Promise<void> {
  if (cgroup === null) return;
  for (let count = 1; ; count += 1) {
    const busy = removeCgroup(cgroup);
    if (busy.length === 0) return;
    if (count === cgroupTries) return log.warn({ folders: busy }, "cannot remove cgroups of a task");
    await new Promise((resolve) => setTimeout(resolve, cgroupTryMs));
  }
}

export class ExecRun implements RunningTask {
  readonly state: RunState;
  readonly startedAtMs: number;
  readonly exited: Promise<TaskExit>;
  readonly attributes: Readonly<Record<string, string>>;
  readonly #options: RunOptions;
  readonly #meter: UsageMeter;

  constructor(options: RunOptions) {
    const { state, coreMhz } = options;
    this.#options = options;
    this.state = state;
    this.startedAtMs = state.startedAtMs;
    this.attributes = { pid: String(state.main.pid) };
    this.#meter = new UsageMeter(state.leader.pid, state.cgroup, coreMhz);
    this.exited = this.#end();
  }

  /** R1 */
  async #end(): Promise<TaskExit> {
    const { ended, ends, log, state, tell } = this.#options;
    await ended;
    await ends.swept(state.leader, state.cgroup);
    const isOutOfMemory = state.cgroup !== null && oomKills(state.cgroup) > 0;
    await clearCgroup(state.cgroup, log);
    const { exitCode } = readRunFile(state.runFile);
    if (exitCode === null && state.leader.bootId !== bootId())
      return { exitCode: -1, signal: 0, oomKilled: false, err: "the node was restarted while it ran" };
    // If there is no exit code, the shell was killed.
    const code = exitCode ?? 128 + killed;
    const number = signalNumberOf(code);
    const oomKilled = isOutOfMemory && number === killed;
    if (oomKilled) tell("killed by the kernel: it exceeded its memory limit");
    return { exitCode: code, signal: number, oomKilled };
  }

  async stop(name: string, timeoutMs: number): Promise<void> {
    const first = name === "" ? stopSignalDefault : signalNamed(name);
    const timers: NodeJS.Timeout[] = [];
    const kill = (): void => {
      this.#signal("SIGKILL");
      timers.push(setTimeout(() => this.#killAll(), shellMsMax));
    };
    if (first === "SIGKILL" || timeoutMs <= 0) kill();
    else {
      this.#signal(first);
      timers.push(setTimeout(kill, timeoutMs));
    }
    try {
      await this.exited;
    } finally {
      for (const timer of timers) clearTimeout(timer);
    }
  }

  signal(name: string): void {
    this.#signal(signalNamed(name));
  }

  /** R2 */
  #signal(name: NodeJS.Signals): void {
    const { main } = this.state;
    if (isAlive(main)) signal(main.pid, name);
  }

  #killAll(): void {
    const { leader } = this.state;
    if (isAlive(leader)) signal(-leader.pid, "SIGKILL");
  }

  stats(): TaskSample {
    return this.#meter.sample(Date.now());
  }

  exec(request: ExecRequest): ExecSession {
    const { tools, state } = this.#options;
    // The command's namespaces may be found through its process.
    if (!isAlive(state.main)) throw new Error("the task has exited");
    return openSession(joining(state.cgroup), state.where, request, tools);
  }

  execAs(request: ExecRequest, identity: ExecIdentity): ExecSession {
    const { tools, state } = this.#options;
    const { cgroup, frame, main, where } = state;
    if (!isAlive(main)) throw new Error("the task has exited");
    if (frame === null)
      throw new Error(
        "commands in this task cannot differ from it: an earlier version of the driver started it; update its service",
      );
    return openSession(joining(cgroup), surroundingsAs(identity, frame, where, tools), request, tools);
  }

  destroy(): void {
    rmSync(this.state.runFile, { force: true });
  }
}
