/**
 * Runs tasks of kind `exec`: plain processes of the node, each in a session of its own under a directory of its own.
 *
 *   <directory>/<task id>/   run       who leads the session and how the command ended (see wrapper.ts)
 *                            stop      how to stop it
 *                            stdout, stderr, and after rotation stdout.1, stderr.1; each with its .marks (see output.ts)
 *                            work/     the working directory, unless the task names another
 *                            volumes/  links to its cluster volumes, by target; MUSTER_VOLUMES names it
 *
 * Secrets and configs are files in memory, elsewhere (see memory-files.ts); MUSTER_SECRETS and MUSTER_CONFIGS say where.
 *
 * E1: a task's process is found again by any later life of the agent, with its exit code if it has ended meanwhile.
 * E2: a run has ended only when no process of its session is left; what the command leaves behind is killed.
 * E3: calls for one task happen one after the other, in the order in which they were made.
 * E4: nothing that is killed or waited for was mistaken for another process: pid, start time and boot agree.
 * E5: no byte of a task's output passes through this process but the last few of a failed one, and what somebody reads.
 * E6: a task's secrets and configs are there before it starts, and gone before anybody is told that it has ended.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chown, mkdir, open, readFile, rm, stat, writeFile, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import type {
  DriverOutcome,
  DriverTask,
  FoundTask,
  OutputReader,
  OutputRequest,
  StartOutcome,
  TaskDriver,
  TaskExit,
} from "../../actors/agent/agent-ports.ts";
import type { Clock, Logger, TimerHandle } from "../../runtime/ports.ts";
import { commandOf, type AgentEnvironment, type Command } from "./command.ts";
import { filesOf } from "./contents.ts";
import { MemoryFiles, memoryRoots } from "./memory-files.ts";
import { OutputFiles } from "./output-reader.ts";
import { beginMarks, lastOutput, outputBytesMax, outputLookMs, outputNames, rotate, type Marked } from "./output.ts";
import { bootId, hasOtherProgram, isAlive, membersOf, signal, type ProcessName } from "./process.ts";
import { linkVolumes } from "./volumes.ts";
import { parseRunFile, shell, signalOf, wrapperArguments, type RunFile } from "./wrapper.ts";

/** Between two looks at processes that are not this process's children, and so cannot tell it of their end. */
const adoptedLookMs = 200;
/** From the end of a command to the look at what it left behind: ends that come together share one look. */
const sweepDelayMs = 5;
/** A process that survives SIGKILL for longer (it hangs in the kernel) is reported and given up. */
const sweepMsMax = 5_000;
/** How long the shell may take until it has written who it is. */
const startMsMax = 5_000;
const startLookMs = 2;
/** After its shell has written who it is, the command follows within a fraction of a millisecond; this is for a busy machine. */
const commandMsMax = 1_000;

export interface ExecDriverOptions {
  /** Absolute path; made when absent. */
  readonly directory: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** What PATH, HOME and LANG of tasks are taken from. */
  readonly environment: AgentEnvironment;
  /** Of each output file, before it is rotated. */
  readonly outputBytesMax?: number;
  /** Where secrets and configs of tasks may be kept in memory, best first; absolute. */
  readonly memoryRoots?: readonly string[];
}

interface StopFacts {
  readonly signal: NodeJS.Signals;
  readonly graceMs: number;
}

interface Run {
  readonly taskId: string;
  readonly name: ProcessName;
  readonly exited: Promise<TaskExit>;
  readonly end: (exit: TaskExit) => void;
  /** Milliseconds since the epoch; when it was found again, then that time. */
  readonly since: number;
  readonly marked: Marked;
  /** Set when the leader has ended and what it left behind is being killed. */
  sweptSince: number | null;
  hasEnded: boolean;
}

export class ExecDriver implements TaskDriver {
  readonly kind = "exec";
  readonly #options: ExecDriverOptions;
  readonly #runs = new Map<string, Run>();
  /** Found again, or children that the kernel reports itself: the first have to be looked at. */
  readonly #adopted = new Set<Run>();
  readonly #sweeping = new Set<Run>();
  readonly #turns = new Map<string, Promise<unknown>>();
  readonly #timers = new Map<string, TimerHandle>();
  readonly #files: MemoryFiles;
  #isClosed = false;

  constructor(options: ExecDriverOptions) {
    this.#options = options;
    const { directory, environment, log } = options;
    const roots = options.memoryRoots ?? memoryRoots(environment["XDG_RUNTIME_DIR"]);
    this.#files = new MemoryFiles({ directory, log, roots });
    this.#files
      .sweep((taskId) => stat(this.#home(taskId)).then(Boolean, () => false))
      .catch((error: unknown) => log.warn({ error }, "cannot remove secrets and configs of tasks that are gone"));
  }

  prepare(task: DriverTask): Promise<DriverOutcome> {
    return this.#inTurn(task.id, () => this.#prepare(task));
  }

  start(task: DriverTask): Promise<StartOutcome> {
    return this.#inTurn(task.id, () => this.#start(task));
  }

  async wait(taskId: string): Promise<TaskExit> {
    const run = this.#runs.get(taskId);
    if (run === undefined) return { code: -1, signal: "", reason: "there is no process of this task", lastOutput: "" };
    return run.exited;
  }

  find(taskId: string): Promise<FoundTask> {
    return this.#inTurn(taskId, () => this.#find(taskId));
  }

  stop(taskId: string): Promise<TaskExit | null> {
    return this.#inTurn(taskId, () => this.#stop(taskId));
  }

  output(taskId: string, request: OutputRequest): OutputReader {
    return new OutputFiles(this.#home(taskId), request, this.#options.clock);
  }

  remove(taskId: string): Promise<void> {
    return this.#inTurn(taskId, async () => {
      this.#runs.delete(taskId);
      this.#turns.delete(taskId);
      // Before the directory: while that is there, a later life knows that there may be files.
      await this.#files.remove(taskId);
      await rm(this.#home(taskId), { recursive: true, force: true });
    });
  }

  close(): void {
    this.#isClosed = true;
    for (const timer of this.#timers.values()) this.#options.clock.clearTimeout(timer);
    this.#timers.clear();
  }

  #home(taskId: string): string {
    return join(this.#options.directory, taskId);
  }

  /** E3 */
  #inTurn<T>(taskId: string, act: () => Promise<T>): Promise<T> {
    const turn = (this.#turns.get(taskId) ?? Promise.resolve()).then(act);
    this.#turns.set(
      taskId,
      turn.catch(() => {}),
    );
    return turn;
  }

  async #prepare(task: DriverTask): Promise<DriverOutcome> {
    const outcome = commandOf(task, this.#options.environment);
    if (outcome.kind === "refused") return outcome;
    const { command, spec } = outcome;
    const contents = filesOf(task, spec, command.env);
    if (contents.kind === "refused") return contents;
    const home = this.#home(task.id);
    try {
      // Others may pass through to `work`, but not see what is here.
      await mkdir(this.#options.directory, { recursive: true, mode: 0o711 });
      await mkdir(home, { recursive: true, mode: 0o711 });
      const work = join(home, "work");
      await mkdir(work, { recursive: true, mode: 0o700 });
      if (command.user !== null) await chown(work, command.user.uid, command.user.gid);
      await writeFile(join(home, "stop"), `${command.stopSignal} ${command.stopGraceMs}\n`, { mode: 0o600 });
      if (task.volumes !== undefined && task.volumes.length > 0) await linkVolumes(join(home, "volumes"), task.volumes);
      if (contents.files.length > 0) await this.#files.write(task.id, contents.files, command.user);
      return { kind: "done" };
    } catch (error) {
      await this.#removeFiles(task.id);
      return { kind: "refused", reason: `exec: cannot make the task's directory: ${textOf(error)}` };
    }
  }

  async #start(task: DriverTask): Promise<StartOutcome> {
    if (this.#runs.has(task.id)) return { kind: "refused", reason: "exec: the task was started already" };
    const outcome = commandOf(task, this.#options.environment);
    if (outcome.kind === "refused") return outcome;
    const home = this.#home(task.id);
    const files: FileHandle[] = [];
    try {
      for (const name of outputNames) files.push(await open(join(home, name), "a", 0o600));
      await beginMarks(home, this.#options.clock.now());
      files.push(await open(join(home, "run"), "w", 0o600));
      const { command, spec } = outcome;
      const hasFiles = spec.secrets.length + spec.configs.length > 0;
      const variables = {
        ...(hasFiles ? await this.#fileVariables(task.id) : {}),
        ...(spec.mounts.length > 0 ? { MUSTER_VOLUMES: join(home, "volumes") } : {}),
      };
      const pid = await this.#spawn(
        task.id,
        { ...command, env: { ...variables, ...command.env } },
        files.map(({ fd }) => fd),
      );
      return { kind: "started", pid };
    } catch (error) {
      await this.#removeFiles(task.id);
      return { kind: "refused", reason: `exec: cannot start ${outcome.command.path}: ${textOf(error)}` };
    } finally {
      for (const file of files) await file.close();
    }
  }

  async #fileVariables(taskId: string): Promise<Readonly<Record<string, string>>> {
    const home = await this.#files.of(taskId);
    return { MUSTER_SECRETS: join(home, "secrets"), MUSTER_CONFIGS: join(home, "configs") };
  }

  /** E6. What cannot be removed now is tried again when the task is forgotten. */
  async #removeFiles(taskId: string): Promise<void> {
    await this.#files
      .remove(taskId)
      .catch((error: unknown) =>
        this.#options.log.error({ error, task: taskId }, "cannot remove the secrets and configs of a task"),
      );
  }

  async #spawn(
    taskId: string,
    command: Command,
    [stdout, stderr, runFile]: readonly (number | undefined)[],
  ): Promise<number> {
    const child = spawn(shell, [...wrapperArguments(command.path, command.args)], {
      cwd: command.directory === "" ? join(this.#home(taskId), "work") : command.directory,
      env: command.env as NodeJS.ProcessEnv,
      ...command.user,
      detached: true, // a session of its own: the agent may end before it
      stdio: ["ignore", stdout, stderr, runFile],
    });
    const ended = Promise.withResolvers<void>();
    child.once("exit", () => ended.resolve());
    await once(child, "spawn");
    child.unref();
    const name = await this.#introduced(taskId, ended.promise);
    if (name === null) {
      if (child.pid !== undefined) signal(-child.pid, "SIGKILL");
      throw new Error("its shell did not start");
    }
    const run = this.#track(taskId, name);
    void ended.promise.then(() => this.#leaderEnded(run));
    return name.pid;
  }

  /** Who the shell is, once it has written it; null when it does not. */
  async #introduced(taskId: string, ended: Promise<void>): Promise<ProcessName | null> {
    const deadline = this.#options.clock.now() + startMsMax;
    let hasEnded = false;
    void ended.then(() => (hasEnded = true));
    for (;;) {
      // In this order: a shell that has ended by now has written all that it ever will.
      const isLast = hasEnded || this.#options.clock.now() > deadline;
      const { name } = await this.#runFile(taskId);
      if (name !== null || isLast) return name;
      await new Promise<void>((resolve) => this.#options.clock.setTimeout(resolve, startLookMs));
    }
  }

  async #runFile(taskId: string): Promise<RunFile> {
    try {
      return parseRunFile(await readFile(join(this.#home(taskId), "run"), "latin1"));
    } catch {
      return { name: null, exitCode: null };
    }
  }

  #track(taskId: string, name: ProcessName): Run {
    const { promise, resolve } = Promise.withResolvers<TaskExit>();
    const run: Run = {
      taskId,
      name,
      exited: promise,
      end: resolve,
      since: this.#options.clock.now(),
      // Of a run that was found again, the first look marks what there is.
      marked: { stdout: 0, stderr: 0 },
      sweptSince: null,
      hasEnded: false,
    };
    this.#runs.set(taskId, run);
    this.#repeat("outputs", outputLookMs, () => this.#rotateAll());
    return run;
  }

  /** E1 */
  async #find(taskId: string): Promise<FoundTask> {
    const known = this.#runs.get(taskId);
    if (known !== undefined && !known.hasEnded) return { kind: "running", pid: known.name.pid };
    const { name } = await this.#runFile(taskId);
    if (name === null) return { kind: "absent" };
    const run = known ?? this.#track(taskId, name);
    if (isAlive(name)) {
      this.#adopted.add(run);
      this.#repeat("adopted", adoptedLookMs, () => this.#lookAtAdopted());
      return { kind: "running", pid: name.pid };
    }
    if (known === undefined) this.#leaderEnded(run);
    return { kind: "exited", pid: name.pid, exit: await run.exited };
  }

  async #stop(taskId: string): Promise<TaskExit | null> {
    const run = this.#runs.get(taskId);
    if (run === undefined) {
      await this.#removeFiles(taskId);
      return null;
    }
    if (run.hasEnded || run.sweptSince !== null) return run.exited;
    const { clock } = this.#options;
    const { graceMs, signal: stopSignal } = await this.#stopFacts(taskId);
    await this.#commandBegun(run);
    this.#signal(run, stopSignal);
    const timer = clock.setTimeout(() => this.#signal(run, "SIGKILL"), graceMs);
    try {
      return await run.exited;
    } finally {
      clock.clearTimeout(timer);
    }
  }

  /**
   * A signal that came before the command, or between its fork and its exec, when it still has the shell's trap, would be
   * swallowed and the stop lost until the grace is over.
   */
  async #commandBegun({ name, since }: Run): Promise<void> {
    const { clock } = this.#options;
    while (clock.now() - since < commandMsMax && isAlive(name) && !hasOtherProgram(name)) {
      await new Promise<void>((resolve) => clock.setTimeout(resolve, startLookMs));
    }
  }

  async #stopFacts(taskId: string): Promise<StopFacts> {
    const [name = "", graceMs = ""] = (
      await readFile(join(this.#home(taskId), "stop"), "latin1").catch(() => "SIGTERM 0")
    )
      .trim()
      .split(" ");
    return { signal: name as NodeJS.Signals, graceMs: Number(graceMs) };
  }

  /** To the whole group. E4 */
  #signal(run: Run, name: NodeJS.Signals): void {
    if (isAlive(run.name)) signal(-run.name.pid, name);
  }

  #lookAtAdopted(): void {
    for (const run of this.#adopted) if (!isAlive(run.name)) this.#leaderEnded(run);
    if (this.#adopted.size === 0) this.#cancel("adopted");
  }

  /** E2 */
  #leaderEnded(run: Run): void {
    this.#adopted.delete(run);
    run.sweptSince = this.#options.clock.now();
    this.#sweeping.add(run);
    this.#repeat("sweep", sweepDelayMs, () => this.#sweep());
  }

  #sweep(): void {
    const { clock, log } = this.#options;
    const members = membersOf([...this.#sweeping].map(({ name }) => name));
    for (const run of this.#sweeping) {
      const left = members.get(run.name.pid) ?? [];
      for (const pid of left) signal(pid, "SIGKILL");
      const isGivenUp = clock.now() - (run.sweptSince ?? 0) > sweepMsMax;
      if (left.length > 0 && !isGivenUp) continue;
      if (left.length > 0) log.error({ task: run.taskId, pids: left }, "processes of a task cannot be killed");
      this.#sweeping.delete(run);
      run.hasEnded = true;
      void this.#exitOf(run).then(run.end);
    }
    if (this.#sweeping.size === 0) this.#cancel("sweep");
  }

  async #exitOf(run: Run): Promise<TaskExit> {
    await this.#removeFiles(run.taskId);
    const { exitCode } = await this.#runFile(run.taskId);
    const output = exitCode === 0 ? "" : await lastOutput(this.#home(run.taskId));
    if (exitCode !== null) return { code: exitCode, signal: signalOf(exitCode), reason: "", lastOutput: output };
    if (run.name.bootId !== bootId())
      return { code: -1, signal: "", reason: "the node was restarted while it ran", lastOutput: output };
    // Only SIGKILL keeps the shell from writing how the command ended.
    return { code: 137, signal: "SIGKILL", reason: "", lastOutput: output };
  }

  async #rotateAll(): Promise<void> {
    const bytesMax = this.#options.outputBytesMax ?? outputBytesMax;
    const live = [...this.#runs.values()].filter(({ hasEnded }) => !hasEnded);
    if (live.length === 0) this.#cancel("outputs");
    for (const { taskId, marked } of live) {
      const nowMs = this.#options.clock.now();
      await rotate(this.#home(taskId), { bytesMax, marked, nowMs }).catch((error: unknown) =>
        this.#options.log.warn({ error, task: taskId }, "cannot rotate a task's output"),
      );
    }
  }

  /** Runs `act` every `ms` until it is cancelled; one timer for each name. */
  #repeat(name: string, ms: number, act: () => void | Promise<void>): void {
    if (this.#isClosed || this.#timers.has(name)) return;
    const again = async (): Promise<void> => {
      await act();
      if (this.#timers.has(name)) arm();
    };
    const arm = (): void =>
      void this.#timers.set(
        name,
        this.#options.clock.setTimeout(() => void again(), ms),
      );
    arm();
  }

  #cancel(name: string): void {
    const timer = this.#timers.get(name);
    if (timer !== undefined) this.#options.clock.clearTimeout(timer);
    this.#timers.delete(name);
  }
}

function textOf(error: unknown): string {
  const { code } = error as NodeJS.ErrnoException;
  if (code === "ENOSPC") return "the disk is full";
  if (code === "EACCES" || code === "EPERM") return `the agent may not: ${(error as Error).message}`;
  return error instanceof Error ? error.message : String(error);
}
