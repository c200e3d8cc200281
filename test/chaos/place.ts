/** A machine of the cluster: a network namespace, a disk, and the one process that it runs. */
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, readlinkSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Machine } from "../fixtures/lab.ts";
import { isAlive, kill, orNull } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { Disk } from "./disk.ts";
import { MachineProcess } from "./machine-process.ts";

export type Role = "nats" | "manager" | "agent";

export interface Folders {
  /** On a file system in memory. */
  readonly disks: string;
  readonly logs: string;
  /** The part that a machine loses at power-off: `/run`. */
  readonly run: string;
}

export class Place {
  /** `n1`, `m1`, `a1`, … */
  readonly name: string;
  readonly role: Role;
  readonly machine: Machine;
  readonly disk: Disk;
  readonly process: MachineProcess;
  readonly #network: string;
  readonly #run: string;

  constructor(options: {
    readonly name: string;
    readonly role: Role;
    readonly machine: Machine;
    readonly folders: Folders;
    readonly diskBytes: number;
    /** Command to run; receives the place itself. */
    readonly command: (place: Place) => readonly string[];
  }) {
    const { name, role, machine, folders } = options;
    this.name = name;
    this.role = role;
    this.machine = machine;
    this.disk = new Disk(folders.disks, name, options.diskBytes);
    this.#run = join(folders.run, name);
    this.#clearRun();
    this.#network = networkOf(machine);
    this.process = new MachineProcess({
      name,
      log: join(folders.logs, `${name}.log`),
      command: () => [...machine.inside, ...options.command(this)],
      env: { XDG_RUNTIME_DIR: this.#run, TMPDIR: this.#run },
    });
  }

  /** Its process's data directory, on its disk. */
  get dataDir(): string {
    return join(this.disk.path, "data");
  }

  /** All processes on it, whoever started them. */
  pids(): number[] {
    return livingPids().filter((pid) => orNull(() => readlinkSync(`/proc/${pid}/ns/net`)) === this.#network);
  }

  /** Kills (SIGKILL) all processes on it, as a power cut does. */
  async killAll(): Promise<void> {
    const ended = this.process.end();
    await until(`all processes on ${this.name} to exit`, () => {
      const left = this.pids();
      for (const pid of left) kill(pid);
      return left.length === 0;
    });
    await ended;
    this.#clearRun();
  }

  #clearRun(): void {
    rmSync(this.#run, { recursive: true, force: true });
    mkdirSync(this.#run, { recursive: true, mode: 0o700 });
  }
}

/** The name in /proc. */
function networkOf(machine: Machine): string {
  const [file, ...args] = [...machine.inside, "readlink", "/proc/self/ns/net"];
  return execFileSync(file, args, { encoding: "utf8" }).trim();
}

function livingPids(): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => pid !== process.pid && isAlive(pid));
}

/** Words of the command line; empty if the process has exited. */
export function wordsOf(pid: number): readonly string[] {
  const text = orNull(() => readFileSync(`/proc/${pid}/cmdline`, "utf8")) ?? "";
  return text.split("\0").filter((word) => word !== "");
}

/** Null if the process has exited. */
export function parentOf(pid: number): number | null {
  const stat = orNull(() => readFileSync(`/proc/${pid}/stat`, "utf8"));
  return stat === null ? null : Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
}
