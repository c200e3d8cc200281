/**
 * Control groups, v1 or v2, if the system permits: limits, resource usage, OOM kills, and which processes belong to a task,
 * including those that have left its session.
 *
 * C1: nothing here keeps a task from running. An unavailable limit is missing from `controllers` and named in
 *     `description`.
 * C2: a group that the host created (Nomad does) is used but never removed; ours are below `muster-exec` and are removed with
 *     the task.
 */
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  rmdirSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";

/** The parent of our groups in each hierarchy. */
const parentName = "muster-exec";
/** Controllers that are used if available. */
const wanted = ["memory", "cpu", "cpuset", "cpuacct"];

export interface Limits {
  /** In bytes; 0: unlimited, as for all of these. */
  readonly memoryBytes: number;
  /** Bytes that the task keeps under memory pressure. */
  readonly memoryLowBytes: number;
  /** Docker's CPU shares: 1,024 is the default. */
  readonly cpuShares: number;
  /** Microseconds per period. */
  readonly cpuQuotaUs: number;
  readonly cpuPeriodUs: number;
  /** Such as `0,2-3`; empty: all. */
  readonly cpus: string;
}

/** A task's group: plain JSON, stored in its handle. */
export interface TaskCgroup {
  readonly version: 1 | 2;
  /** Absolute paths by controller; v2 has only `unified`. */
  readonly folders: Readonly<Record<string, string>>;
  /** Folders to remove with the task. */
  readonly own: readonly string[];
}

export interface Cgroups {
  readonly version: 0 | 1 | 2;
  readonly controllers: readonly string[];
  /** A short description for the fingerprint. */
  readonly description: string;
  /** The parents of our groups, by controller. */
  readonly parents: Readonly<Record<string, string>>;
}

interface Mount {
  readonly path: string;
  readonly type: string;
  readonly options: readonly string[];
}

function mounts(): readonly Mount[] {
  return readFileSync("/proc/self/mounts", "utf8")
    .split("\n")
    .map((line) => line.split(" "))
    .map(([, path = "", type = "", options = ""]) => ({ path, type, options: options.split(",") }));
}

function words(path: string): readonly string[] {
  return readFileSync(path, "utf8").trim().split(/\s+/).filter(Boolean);
}

/** Throws without permission. The parent may exist already, created by a driver of another user. */
function makeParent(mount: string): string {
  const parent = join(mount, parentName);
  mkdirSync(parent, { recursive: true });
  accessSync(parent, constants.W_OK);
  return parent;
}

/** Enables controllers for the groups below a group. */
function handDown(folder: string, controllers: readonly string[]): void {
  const file = join(folder, "cgroup.subtree_control");
  const there = words(file);
  for (const controller of controllers) if (!there.includes(controller)) writeFileSync(file, `+${controller}`);
}

function message(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function unified(all: readonly Mount[]): Cgroups | string {
  const mount = all.find(({ type }) => type === "cgroup2");
  if (mount === undefined) return "no cgroup file system is mounted";
  try {
    const controllers = words(join(mount.path, "cgroup.controllers")).filter((name) => wanted.includes(name));
    if (!controllers.includes("memory")) return "cgroup v2 has no memory controller here";
    const parent = makeParent(mount.path);
    handDown(mount.path, controllers);
    handDown(parent, controllers);
    return { version: 2, controllers, description: "limits by cgroup v2", parents: { unified: parent } };
  } catch (error) {
    return `cannot create cgroups: ${message(error)}`;
  }
}

function separate(all: readonly Mount[]): Cgroups | null {
  const parents: Record<string, string> = {};
  for (const controller of wanted) {
    const mount = all.find(({ type, options }) => type === "cgroup" && options.includes(controller));
    // A process can join a cpuset only after it was configured: only the host's are used.
    if (mount === undefined || controller === "cpuset") continue;
    try {
      parents[controller] = makeParent(mount.path);
    } catch {
      continue; // C1
    }
  }
  if (parents["memory"] === undefined) return null;
  const controllers = Object.keys(parents);
  return { version: 1, controllers, description: "limits by cgroup v1", parents };
}

/** Detects the limits that this system supports. Creates the parents of our groups. */
export function probeCgroups(): Cgroups {
  const all = mounts();
  const found = unified(all);
  if (typeof found !== "string") return found;
  return separate(all) ?? { version: 0, controllers: [], description: `no limits: ${found}`, parents: {} };
}

/** C1 */
function set(folder: string | undefined, file: string, value: string | number): void {
  if (folder === undefined) return;
  try {
    writeFileSync(join(folder, file), String(value));
  } catch {
    // The kernel lacks this file, or the parent group does not allow the value.
  }
}

/** The kernel's formula for converting shares to a weight. */
function weightOf(shares: number): number {
  return Math.min(10_000, Math.max(1, Math.round(1 + ((shares - 2) * 9_999) / 262_142)));
}

function limit({ version, folders }: TaskCgroup, limits: Limits): void {
  const { memoryBytes, memoryLowBytes, cpuShares, cpuQuotaUs, cpuPeriodUs, cpus } = limits;
  const period = cpuPeriodUs > 0 ? cpuPeriodUs : 100_000;
  if (version === 2) {
    const folder = folders["unified"];
    if (memoryBytes > 0) {
      set(folder, "memory.max", memoryBytes);
      set(folder, "memory.swap.max", 0);
    }
    if (memoryLowBytes > 0) set(folder, "memory.low", memoryLowBytes);
    if (cpuShares > 0) set(folder, "cpu.weight", weightOf(cpuShares));
    if (cpuQuotaUs > 0) set(folder, "cpu.max", `${cpuQuotaUs} ${period}`);
    if (cpus !== "") set(folder, "cpuset.cpus", cpus);
    return;
  }
  if (memoryBytes > 0) {
    set(folders["memory"], "memory.limit_in_bytes", memoryBytes);
    set(folders["memory"], "memory.memsw.limit_in_bytes", memoryBytes);
  }
  if (memoryLowBytes > 0) set(folders["memory"], "memory.soft_limit_in_bytes", memoryLowBytes);
  if (cpuShares > 0) set(folders["cpu"], "cpu.shares", Math.max(2, cpuShares));
  if (cpuQuotaUs > 0) {
    set(folders["cpu"], "cpu.cfs_period_us", period);
    set(folders["cpu"], "cpu.cfs_quota_us", cpuQuotaUs);
  }
}

/** `given`: the group that the host created for the task (`cpuset_cgroup`), or empty. */
function foldersOf(cgroups: Cgroups, name: string, given: string): TaskCgroup {
  const { parents, version } = cgroups;
  const isGiven = given !== "" && existsSync(join(given, "cgroup.procs"));
  if (version === 2) {
    const isUsable = isGiven && existsSync(join(given, "memory.max"));
    const folder = isUsable ? given : join(parents["unified"] as string, name);
    return { version, folders: { unified: folder }, own: isUsable ? [] : [folder] };
  }
  const folders: Record<string, string> = {};
  for (const [controller, parent] of Object.entries(parents)) folders[controller] = join(parent, name);
  const own = [...new Set(Object.values(folders))];
  return { version: 1, folders: isGiven ? { ...folders, cpuset: given } : folders, own };
}

/** Our group of this name, whether or not it exists; null if the system supports none. */
export function namedCgroup(cgroups: Cgroups, name: string): TaskCgroup | null {
  return cgroups.version === 0 ? null : foldersOf(cgroups, name, "");
}

/** Null if the system supports no groups. */
export function makeCgroup(cgroups: Cgroups, name: string, limits: Limits, given: string): TaskCgroup | null {
  if (cgroups.version === 0) return null;
  const cgroup = foldersOf(cgroups, name, given);
  for (const folder of cgroup.own) mkdirSync(folder, { recursive: true });
  limit(cgroup, limits);
  return cgroup;
}

/** The files to which a process writes `0` in order to join. */
export function joinFiles(cgroup: TaskCgroup | null): readonly string[] {
  if (cgroup === null) return [];
  return [...new Set(Object.values(cgroup.folders))].map((folder) => join(folder, "cgroup.procs"));
}

/** Larger than any of the kernel's files about a group. */
const buffer = Buffer.alloc(16 * 1024);

/** Takes a third of the time of readFileSync, which first asks for the file's size, although these files report none. */
function read(folder: string | undefined, file: string): string {
  if (folder === undefined) return "";
  try {
    const fd = openSync(`${folder}/${file}`, "r");
    try {
      return buffer.toString("latin1", 0, readSync(fd, buffer, 0, buffer.length, 0));
    } finally {
      closeSync(fd);
    }
  } catch {
    return "";
  }
}

/** The number after a key in a file of lines `key number`; undefined if absent. */
function entry(text: string, key: string): number | undefined {
  const at = text.startsWith(`${key} `) ? 0 : text.indexOf(`\n${key} `) + 1;
  if (at === 0 && !text.startsWith(`${key} `)) return undefined;
  return Number.parseInt(text.slice(at + key.length + 1, at + key.length + 24), 10);
}

function whole(text: string): number | undefined {
  return /^\d+\n?$/.test(text) ? Number(text) : undefined;
}

/** The folder that lists the task's processes. */
const membersFolder = ({ folders }: TaskCgroup): string | undefined => folders["unified"] ?? folders["memory"];

/** As many as fit into a buffer: callers that kill them repeat the call. */
export function membersOfCgroup(cgroup: TaskCgroup): readonly number[] {
  const text = read(membersFolder(cgroup), "cgroup.procs");
  return text
    .slice(0, text.lastIndexOf("\n") + 1)
    .split("\n")
    .filter(Boolean)
    .map(Number);
}

/** The number of processes in the group that the kernel's OOM killer has killed. */
export function oomKills({ folders }: TaskCgroup): number {
  const { unified: one, memory } = folders;
  return entry(one === undefined ? read(memory, "memory.oom_control") : read(one, "memory.events"), "oom_kill") ?? 0;
}

interface CgroupUsage {
  /** Nanoseconds since the group was created. */
  readonly cpuNs: number | undefined;
  readonly userNs: number | undefined;
  readonly throttledPeriods: number | undefined;
  readonly throttledNs: number | undefined;
  /** In bytes. */
  readonly rss: number | undefined;
  readonly cache: number | undefined;
  readonly usage: number | undefined;
  readonly swap: number | undefined;
}

const times = (value: number | undefined, factor: number): number | undefined =>
  value === undefined ? undefined : value * factor;

export function usageOf({ version, folders }: TaskCgroup): CgroupUsage {
  if (version === 2) {
    const folder = folders["unified"];
    const cpu = read(folder, "cpu.stat");
    const memory = read(folder, "memory.stat");
    return {
      cpuNs: times(entry(cpu, "usage_usec"), 1_000),
      userNs: times(entry(cpu, "user_usec"), 1_000),
      throttledPeriods: entry(cpu, "nr_throttled"),
      throttledNs: times(entry(cpu, "throttled_usec"), 1_000),
      rss: entry(memory, "anon"),
      cache: entry(memory, "file"),
      usage: whole(read(folder, "memory.current")),
      swap: whole(read(folder, "memory.swap.current")),
    };
  }
  const memory = read(folders["memory"], "memory.stat");
  const [rss, cache] = [entry(memory, "rss"), entry(memory, "cache")];
  return {
    cpuNs: whole(read(folders["cpuacct"], "cpuacct.usage")),
    userNs: undefined,
    throttledPeriods: undefined,
    throttledNs: undefined,
    rss,
    cache,
    usage: rss === undefined || cache === undefined ? undefined : rss + cache,
    swap: entry(memory, "swap"),
  };
}

/** Kills all processes at once; false if the kernel cannot, and each must be killed separately. */
export function killCgroup({ version, folders }: TaskCgroup): boolean {
  const file = join(folders["unified"] ?? "", "cgroup.kill");
  if (version !== 2 || !existsSync(file)) return false;
  writeFileSync(file, "1");
  return true;
}

/** C2. Returns the folders that are still in use. */
export function removeCgroup({ own }: TaskCgroup): readonly string[] {
  return own.filter((folder) => {
    // The state comes from a handle: a folder that is not below our parent is not ours.
    if (basename(dirname(folder)) !== parentName) return false;
    try {
      rmdirSync(folder);
      return false;
    } catch (error) {
      return (error as NodeJS.ErrnoException).code !== "ENOENT";
    }
  });
}
