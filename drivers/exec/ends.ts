/**
 * Waits for the ends of processes that are no children of this one, and for everything that a task leaves behind to be gone.
 *
 * N1: nothing that is killed or waited for was mistaken for another process: pid, start time and boot agree.
 * N2: ends that come together share one look.
 */
import { watch, type FSWatcher } from "node:fs";
import { basename } from "node:path";
import type { Logger } from "../../runtime/ports.ts";
import { membersOfCgroup, killCgroup, type TaskCgroup } from "./cgroups.ts";
import { membersOf, processes, signal, type ProcessName, type Processes } from "./process.ts";

/** A shell that ends writes that down, which wakes us: this is for one that was killed. */
const lookMs = 1_000;
/**
 * So many are looked at each time, in turn, where there are more: a thousand looks each second would cost a driver that only
 * waits a twentieth of a processor. That a number is no more given out tells of all the others.
 */
const looksMax = 32;
/** After a run file was written: its shell needs a moment to end. */
const soonMs = [5, 50];
/** From the end of a shell to the look at what its command left behind. */
const sweepMs = 5;
/** A process that survives SIGKILL for longer (it hangs in the kernel) is reported and given up. */
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
  /** Whose turn it is to be looked at. */
  #turn = 0;

  /** `folder`: where shells write their run files. */
  constructor(folder: string, log: Logger, machine: Processes = processes) {
    this.#folder = folder;
    this.#log = log;
    this.#processes = machine;
  }

  /** Resolves when the process that writes this run file has ended; it need not be a child of ours. */
  ended(name: ProcessName, runFile: string): Promise<void> {
    return new Promise((resolve) => {
      this.#awaited.set(basename(runFile), { name, resolve });
      this.#watch();
      this.#looking ??= setInterval(() => this.#lookAround(), lookMs);
      this.#look(basename(runFile));
    });
  }

  /** Kills what is left of the session that this process led, or of its group; resolves when nothing is. */
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
      this.#watcher.on("error", () => {}); // there is still the look at each second
    } catch (error) {
      this.#log.debug({ error }, "cannot be woken by ends of tasks");
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
    // With a cgroup nobody has to look through all of /proc.
    const bySession = membersOf([...this.#sweeps].filter(({ cgroup }) => cgroup === null).map(({ name }) => name));
    for (const sweep of this.#sweeps) {
      const { cgroup, name, resolve, since } = sweep;
      const left = cgroup === null ? (bySession.get(name.pid) ?? []) : membersOfCgroup(cgroup);
      if (left.length > 0) {
        if (cgroup === null || !killCgroup(cgroup)) for (const pid of left) signal(pid, "SIGKILL");
        if (performance.now() - since < sweepMsMax) continue;
        this.#log.error({ pids: left }, "processes of a task cannot be killed");
      }
      this.#sweeps.delete(sweep);
      resolve();
    }
    this.#isSweeping = this.#sweeps.size > 0;
    if (this.#isSweeping) setTimeout(() => this.#sweep(), sweepMs);
  }
}
