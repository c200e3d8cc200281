/**
 * Waits until processes that are not our children exit, and until nothing is left of a task.
 *
 * N1: a reused pid is never killed or waited for by mistake: pid, start time and boot must match.
 * N2: exits at about the same time share one check.
 */
import { watch, type FSWatcher } from "node:fs";
import { basename } from "node:path";
import type { Logger } from "../../runtime/ports/index.ts";
import { membersOfCgroup, killCgroup, type TaskCgroup } from "./cgroups.ts";
import { membersOf, processes, signal, type ProcessName, type Processes } from "./process.ts";

/** Polling interval in milliseconds. An exiting shell writes to its run file, which wakes us; polling finds killed shells. */
const lookMs = 1_000;
/**
 * Number of processes checked per interval, in turn: checking a thousand every second would cost an idle driver a twentieth
 * of a CPU. Processes whose pid no longer exists are found among all of them.
 */
const looksMax = 32;
/** Delays after a write to a run file, in milliseconds: its shell needs a moment to exit. */
const soonMs = [5, 50];
/** Delay between the exit of a shell and the check for processes left behind, in milliseconds. */
const sweepMs = 5;
/** A process that survives SIGKILL for longer (it hangs in the kernel) is reported and given up; milliseconds. */
const sweepMsMax = 5_000;

interface Awaited {
  readonly name: ProcessName;
  readonly resolve: () => void;
}

interface Sweep {
  readonly name: ProcessName;
  readonly resolve: () => void;
  readonly cgroup: TaskCgroup | null;
  readonly since: number;
}

export class Ends {
  readonly #folder: string;
  readonly #log: Logger;
  readonly #processes: Processes;
  /** By the name of the run file. */
  readonly #awaited = new Map<string, Awaited>();
  readonly #sweeps = new Set<Sweep>();
  #watcher: FSWatcher | null = null;
  #looking: NodeJS.Timeout | null = null;
  #isSweeping = false;
  /** The next one to check. */
  #turn = 0;

  /** `folder`: where shells write their run files. */
  constructor(folder: string, log: Logger, machine: Processes = processes) {
    this.#folder = folder;
    this.#log = log;
    this.#processes = machine;
  }

  /** Resolves when the process that writes this run file has exited; it need not be our child. */
  ended(name: ProcessName, runFile: string): Promise<void> {
    return new Promise((resolve) => {
      this.#awaited.set(basename(runFile), { name, resolve });
      this.#watch();
      this.#looking ??= setInterval(() => this.#lookAround(), lookMs);
      this.#look(basename(runFile));
    });
  }

  /** Kills what is left of the session or group that this process led; resolves when nothing is left. */
  swept(name: ProcessName, cgroup: TaskCgroup | null): Promise<void> {
    return new Promise((resolve) => {
      this.#sweeps.add({ name, cgroup, resolve, since: performance.now() });
      if (this.#isSweeping) return;
      this.#isSweeping = true;
      setTimeout(() => this.#sweep(), sweepMs);
    });
  }

  #watch(): void {
    if (this.#watcher !== null) return;
    try {
      this.#watcher = watch(this.#folder, { persistent: false }, (_event, file) => {
        if (file !== null && this.#awaited.has(file)) for (const ms of soonMs) setTimeout(() => this.#look(file), ms);
      });
      this.#watcher.on("error", () => {}); // polling remains
    } catch (error) {
      this.#log.debug({ error }, "cannot watch the run files of tasks; polling them");
    }
  }

  #lookAround(): void {
    const files = [...this.#awaited.keys()];
    if (files.length > looksMax) {
      const pids = this.#processes.pids();
      for (const [file, { name }] of this.#awaited) if (!pids.has(String(name.pid))) this.#look(file);
    }
    for (let count = 0; count < Math.min(looksMax, files.length); count += 1)
      this.#look(files[this.#turn++ % files.length] as string);
  }

  #look(file: string): void {
    const awaited = this.#awaited.get(file);
    if (awaited === undefined || this.#processes.isAlive(awaited.name)) return;
    this.#awaited.delete(file);
    awaited.resolve();
    if (this.#awaited.size > 0) return;
    this.#watcher?.close();
    this.#watcher = null;
    if (this.#looking !== null) clearInterval(this.#looking);
    this.#looking = null;
  }

  #sweep(): void {
    // With a cgroup, /proc need not be scanned.
    const bySession = membersOf([...this.#sweeps].filter(({ cgroup }) => cgroup === null).map(({ name }) => name));
    for (const sweep of this.#sweeps) {
      const { cgroup, name, resolve, since } = sweep;
      const left = cgroup === null ? (bySession.get(name.pid) ?? []) : membersOfCgroup(cgroup);
      if (left.length > 0) {
        if (cgroup === null || !killCgroup(cgroup)) for (const pid of left) signal(pid, "SIGKILL");
        if (performance.now() - since < sweepMsMax) continue;
        this.#log.error({ pids: left }, "cannot kill processes of a task");
      }
      this.#sweeps.delete(sweep);
      resolve();
    }
    this.#isSweeping = this.#sweeps.size > 0;
    if (this.#isSweeping) setTimeout(() => this.#sweep(), sweepMs);
  }
}
