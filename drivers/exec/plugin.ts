/**
 * The exec task driver: plain processes of the node. The driver's process may die at any time and its tasks continue: its state
 * is in handles and in run files.
 *
 * X1: a task is started once: if an earlier process of this driver started it and its answer was lost, a repeated start returns
 *     that task.
 * X2: output does not pass through this process.
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { closeSync, constants, openSync, readdirSync, rmSync, statSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { pluginLog, type Driver, type Fingerprint, type TaskRequest } from "../../edges/plugin/server/index.ts";
import {
  NetworkIsolationSpec_NetworkIsolationMode as Isolation,
  type NomadDriverConfig,
} from "../../proto/gen/nomad.ts";
import { fetchArtifacts } from "./artifacts.ts";
import { makeCgroup, namedCgroup, probeCgroups, removeCgroup, type Cgroups, type TaskCgroup } from "./cgroups.ts";
import { Ends } from "./ends.ts";
import { configDefault, driverFields, taskFields, type DriverConfig, type ExecConfig } from "./fields.ts";
import { introduced } from "./introduction.ts";
import { checkDriver, lacking } from "./isolation.ts";
import { launchOf, limitsOf, taskDirectory, type Launch } from "./launch.ts";
import { closeOutput, openOutput } from "../../linux/output/output-files.ts";
import { bootId, isAlive, type ProcessName } from "./process.ts";
import { shell, taskArguments, type FileWrite } from "./run-file.ts";
import { clearCgroup, ExecRun, joining, readRunFile, type RunState } from "./run.ts";
import { ownFolder } from "../../linux/own-folder.ts";
import { findTools, type Tools } from "../../linux/system-tools.ts";
import { userNamed } from "../../linux/user.ts";

const earlierLookMs = 20;
/** A week: longer than any host is away that will still ask for its tasks' exit status. */
const forgetMs = 7 * 24 * 3_600_000;

type Request = TaskRequest<ExecConfig>;

interface Parts {
  readonly folder: string;
  readonly ends: Ends;
  readonly cgroups: Cgroups;
  readonly tools: Tools;
}

function stateFolder(config: DriverConfig | null): string {
  const named = config?.state_dir ?? "";
  if (named !== "") return named;
  if (process.getuid?.() === 0) return "/run/muster-driver-exec";
  return join(process.env["XDG_RUNTIME_DIR"] ?? tmpdir(), `muster-driver-exec-${process.getuid?.() ?? 0}`);
}

/** In MHz; 0 if unknown. */
function coreMhz(agent: NomadDriverConfig | null): number {
  const [core] = agent?.Topology?.cores ?? [];
  const reported = core === undefined ? 0 : core.baseSpeed || core.maxSpeed || core.guessSpeed;
  return reported || (cpus()[0]?.speed ?? 0);
}

/** Hosts reuse an id only after the task was destroyed; different hosts have different directories. */
function nameOf({ id, task }: Request): string {
  return createHash("sha256").update(`${task.allocDir}\0${id}`).digest("hex").slice(0, 32);
}

function textOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code === "ENOSPC"
    ? "the disk is full"
    : error instanceof Error
      ? error.message
      : String(error);
}

/** Removes the state of tasks that no host has queried or destroyed for `forgetMs`. */
function forgetOld(folder: string, cgroups: Cgroups): void {
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    const { leader } = readRunFile(path);
    const isOld = Date.now() - (statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Date.now()) > forgetMs;
    if (!isOld || (leader !== null && isAlive(leader))) continue;
    const cgroup = namedCgroup(cgroups, name);
    if (cgroup !== null) removeCgroup(cgroup);
    rmSync(path, { force: true });
  }
}

function isProcess(value: unknown): value is ProcessName {
  const { pid, startTime, bootId } = (value ?? {}) as Partial<ProcessName>;
  return Number.isInteger(pid) && (pid as number) > 1 && typeof startTime === "number" && typeof bootId === "string";
}

/** Throws for a state that this driver did not write. */
function parseState(value: unknown): RunState {
  const state = (value ?? {}) as Partial<RunState>;
  const { leader, main, runFile, cgroup = null, where, frame = null, startedAtMs } = state;
  const isCgroup = cgroup === null || (typeof cgroup.folders === "object" && Array.isArray(cgroup.own));
  const isWhere = typeof where?.directory === "string" && typeof where.env === "object" && Array.isArray(where.prefix);
  const isOurs = typeof runFile === "string" && typeof startedAtMs === "number" && isCgroup && isWhere;
  if (!isProcess(leader) || !isProcess(main) || !isOurs) throw new Error("the handle was not created by this driver");
  return { leader, main, runFile, cgroup, where, frame, startedAtMs };
}

export class ExecPlugin implements Driver<typeof driverFields, typeof taskFields> {
  readonly name: string = "exec";
  readonly version = "0.1.0";
  readonly config = driverFields;
  readonly task = taskFields;
  readonly capabilities = {
    sendSignals: true,
    exec: true,
    networkIsolationModes: [Isolation.HOST, Isolation.GROUP],
  };
  #config: DriverConfig | null = null;
  #coreMhz = 0;
  #parts: Parts | null = null;
  #lastTurn: Promise<void> = Promise.resolve();
  readonly #log = pluginLog("exec");

  configure(config: DriverConfig, agent: NomadDriverConfig | null): void {
    checkDriver(config);
    this.#config = config;
    if (agent === null) return;
    this.#parts = null;
    this.#coreMhz = coreMhz(agent);
  }

  /** Created on first use, since a plugin that is only queried must leave nothing behind. */
  #having(): Parts {
    if (this.#parts !== null) return this.#parts;
    const folder = ownFolder(stateFolder(this.#config));
    const cgroups = probeCgroups();
    forgetOld(folder, cgroups);
    this.#parts = {
      folder,
      ends: new Ends(folder, this.#log),
      cgroups,
      tools: findTools(process.env["PATH"] ?? ""),
    };
    return this.#parts;
  }

  fingerprint(): Fingerprint {
    const { cgroups, tools } = this.#having();
    const isRoot = process.getuid?.() === 0;
    const reason = lacking(this.#config ?? configDefault, tools);
    return {
      health: reason === null ? "healthy" : "unhealthy",
      description: reason ?? cgroups.description,
      attributes: {
        "driver.exec.isolation": (this.#config ?? configDefault).isolation,
        "driver.exec.cgroups": cgroups.version === 0 ? "none" : `v${cgroups.version}`,
        "driver.exec.limits": cgroups.controllers.join(","),
        "driver.exec.users": isRoot && tools.chroot !== null,
        "driver.exec.chroot": isRoot && tools.chroot !== null,
        "driver.exec.networks": isRoot && tools.nsenter !== null,
        "driver.exec.dns": isRoot && [tools.nsenter, tools.unshare, tools.mount, tools.umount].every(Boolean),
        "driver.exec.terminals": tools.script !== null && tools.stty !== null,
      },
    };
  }

  async start(request: Request): Promise<ExecRun> {
    const parts = this.#having();
    const name = nameOf(request);
    const runFile = join(parts.folder, name);
    await this.#fetch(request, parts, runFile);
    const launch = launchOf(request, {
      tools: parts.tools,
      driver: this.#config ?? configDefault,
      place: parts.folder,
    });
    const cgroup = makeCgroup(
      parts.cgroups,
      name,
      limitsOf(request.task),
      request.task.resources?.linuxResources?.cpusetCgroup ?? "",
    );
    const earlier = await this.#earlier(runFile, cgroup, launch);
    if (earlier !== null) return this.#resume(request, parts, earlier);
    try {
      return await this.#launch(request, launch, parts, runFile, cgroup);
    } catch (error) {
      rmSync(runFile, { force: true });
      await clearCgroup(cgroup, this.#log);
      throw new Error(`cannot start ${launch.command[0] ?? ""}: ${textOf(error)}`, { cause: error });
    }
  }

  /** Skipped for a task that an earlier start has begun: it has its artifacts (X1). */
  async #fetch({ config, task, tell }: Request, { tools }: Parts, runFile: string): Promise<void> {
    const { leader } = readRunFile(runFile);
    if (leader !== null && leader.bootId === bootId()) return;
    await fetchArtifacts(config.artifact, { home: taskDirectory(task), user: userNamed(task.user), tools, tell });
  }

  /** Starting a process blocks this one for milliseconds: between two starts others get their answers. */
  #turn(): Promise<void> {
    this.#lastTurn = this.#lastTurn.then(() => new Promise((resolve) => setImmediate(resolve)));
    return this.#lastTurn;
  }

  /** X1. Also finds a task that has exited, and one whose shell is about to start its command. */
  async #earlier(runFile: string, cgroup: TaskCgroup | null, launch: Launch): Promise<RunState | null> {
    for (;;) {
      const { leader, main } = readRunFile(runFile);
      if (leader === null || leader.bootId !== bootId()) return null;
      if (main !== null) return { leader, main, runFile, cgroup, ...launch.later(main.pid), startedAtMs: Date.now() };
      if (!isAlive(leader)) return null;
      await new Promise((resolve) => setTimeout(resolve, earlierLookMs));
    }
  }

  async #launch(
    request: Request,
    launch: Launch,
    parts: Parts,
    runFile: string,
    cgroup: TaskCgroup | null,
  ): Promise<ExecRun> {
    const { task, log, tell } = request;
    const writes: FileWrite[] = [...joining(cgroup)];
    if (launch.oomScoreAdj !== 0) writes.push({ value: String(launch.oomScoreAdj), path: "/proc/self/oom_score_adj" });
    const opened: (() => void)[] = [];
    await this.#turn();
    try {
      const output = [task.stdoutPath, task.stderrPath].map((path) => {
        const file = openOutput(path);
        opened.push(() => closeOutput(file));
        return file;
      });
      const flags =
        constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_APPEND | constants.O_NOFOLLOW;
      const run = openSync(runFile, flags, 0o600);
      opened.push(() => closeSync(run));
      const command = [...launch.prefix, ...launch.command];
      const child = spawn(shell, taskArguments(writes, command, launch.isSealed), {
        cwd: launch.directory,
        env: launch.env as NodeJS.ProcessEnv,
        detached: true, // a separate session
        stdio: [
          "ignore",
          ...output.map((file) => file?.write ?? ("ignore" as const)), // X2
          run,
          "pipe",
          ...output.map((file) => file?.keep ?? ("ignore" as const)),
        ],
      });
      const ended = new Promise<void>((resolve) => {
        child.once("exit", () => resolve());
        child.once("error", () => resolve());
      });
      const facts = await introduced(child, runFile);
      if (typeof facts === "string" || facts.leader === null || facts.main === null) {
        child.kill("SIGKILL");
        await ended;
        throw new Error(typeof facts === "string" ? facts : "it exited before the command started");
      }
      child.unref();
      const { leader, main } = facts;
      const state = { leader, main, runFile, cgroup, ...launch.later(main.pid), startedAtMs: Date.now() };
      const { ends, tools } = parts;
      return new ExecRun({ state, tools, ends, log, ended, coreMhz: this.#coreMhz, tell });
    } finally {
      for (const close of opened) close();
    }
  }

  #resume({ log, tell }: Request, { tools, ends }: Parts, state: RunState): ExecRun {
    const ended = ends.ended(state.leader, state.runFile);
    return new ExecRun({ state, tools, ends, log, ended, coreMhz: this.#coreMhz, tell });
  }

  /** A task that has exited meanwhile is recovered with its exit code. */
  recover(request: Request, state: unknown): ExecRun {
    return this.#resume(request, this.#having(), parseState(state));
  }
}
