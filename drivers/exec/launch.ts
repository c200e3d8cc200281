/** Translates a task's configuration to what can be started, and validates all of it. */
import {
  closeSync,
  constants,
  lstatSync,
  mkdirSync,
  openSync,
  readlinkSync,
  realpathSync,
  statSync,
  symlinkSync,
} from "node:fs";
import { isAbsolute, join, resolve } from "node:path";
import type { TaskRequest } from "../../edges/plugin/server/index.ts";
import { NetworkIsolationSpec_NetworkIsolationMode as Isolation, type TaskConfig } from "../../proto/gen/nomad.ts";
import type { Limits } from "./cgroups.ts";
import type { DriverConfig, ExecConfig } from "./fields.ts";
import { isolationOf, sealed, sealedLater, type LaterPlace, type Sealing } from "./isolation.ts";
import { linkedFolders, rootPaths, type RootAsked } from "./private-root.ts";
import { askedDns, resolvConfPath } from "../../linux/task-network/resolv-conf.ts";
import { inMountsOf, ownResolver } from "./resolver.ts";
import { foreignNames, rootAndUser, type CommandFrame, type Surroundings } from "./surroundings.ts";
import { findOnPath, isExecutable, type Tools } from "../../linux/system-tools.ts";
import { userNamed } from "../../linux/user.ts";
import { relativeTarget } from "./volumes.ts";

const pathDefault = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/** The kernel's limit. */
const oomScoreMax = 1_000;

export interface Later {
  readonly where: Surroundings;
  /** For commands that differ from the task. */
  readonly frame: CommandFrame;
}

export interface Launch extends Surroundings {
  /** Without the prefix; the first element is an absolute path inside the task's root. */
  readonly command: readonly string[];
  readonly oomScoreAdj: number;
  /** Whether the prefix reports the start of the command, instead of the shell before it. */
  readonly isSealed: boolean;
  /** For later commands. `pid`: the task's main process. */
  later(pid: number): Later;
}

export function limitsOf({ resources }: TaskConfig): Limits {
  const linux = resources?.linuxResources;
  const memory = resources?.allocatedResources?.memory;
  const lowMb = memory !== null && memory !== undefined && memory.memoryMaxMb !== 0 ? memory.memoryMb : 0;
  return {
    memoryBytes: Math.max(0, linux?.memoryLimitBytes ?? 0),
    memoryLowBytes: Math.max(0, lowMb) * 1024 * 1024,
    cpuShares: linux?.cpuShares ?? 0,
    cpuQuotaUs: linux?.cpuQuota ?? 0,
    cpuPeriodUs: linux?.cpuPeriod ?? 0,
    cpus: linux?.cpusetCpus ?? "",
  };
}

/** The task's directory; empty if the host names none. */
export function taskDirectory({ allocDir, name }: TaskConfig): string {
  return allocDir === "" ? "" : join(allocDir, name);
}

function isDirectory(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

/** Creates the directories of a path. Refuses to follow links, which an earlier run of the task may have created. */
function makeWay(home: string, way: readonly string[]): string {
  let path = home;
  for (const step of way) {
    path = join(path, step);
    const there = lstatSync(path, { throwIfNoEntry: false });
    if (there === undefined) mkdirSync(path);
    else if (!there.isDirectory()) throw new Error(`${path} is not a directory`);
  }
  return path;
}

/** Without a separate root, a task sees its volumes through links in its directory. */
function linkMounts({ mounts }: TaskConfig, home: string): void {
  for (const { hostPath, readonly, taskPath } of mounts) {
    // Through a link, a task can write wherever its user may.
    if (readonly) throw new Error(`cannot mount "${taskPath}" read-only for a process: mount it without readonly`);
    const target = relativeTarget(taskPath);
    if (target === null || home === "") throw new Error(`cannot mount a volume at "${taskPath}"`);
    const way = target.split("/");
    const path = join(makeWay(home, way.slice(0, -1)), way.at(-1) as string);
    const there = lstatSync(path, { throwIfNoEntry: false });
    if (there?.isSymbolicLink() === true && readlinkSync(path) === hostPath) continue;
    if (there !== undefined) throw new Error(`cannot mount a volume at "${taskPath}": the path already exists`);
    symlinkSync(hostPath, path);
  }
}

/** In a private filesystem, volumes are mounts at the same paths. Mount points are created like links. */
function placeMounts({ mounts }: TaskConfig, home: string): RootAsked["volumes"] {
  return mounts.map(({ hostPath, readonly, taskPath }) => {
    const target = relativeTarget(taskPath);
    if (target === null || home === "") throw new Error(`cannot mount a volume at "${taskPath}"`);
    const way = target.split("/");
    const to = join(makeWay(home, way.slice(0, -1)), way.at(-1) as string);
    if (isDirectory(hostPath)) makeWay(home, way);
    else closeSync(openSync(to, constants.O_CREAT | constants.O_NOFOLLOW | constants.O_RDONLY, 0o644));
    return { from: hostPath, to, isReadOnly: readonly };
  });
}

/** The contents of a task's private root. */
function filesOf(
  task: TaskConfig,
  driver: DriverConfig,
  home: string,
  place: string,
): Omit<RootAsked, "hasOwnProcesses"> {
  const own = task.allocDir === "" ? [] : [task.allocDir];
  const resolver = askedDns(task.dns) === null ? [] : [realpathSync(resolvConfPath)];
  const readOnly = [...(home === "" ? [] : linkedFolders(home)), ...resolver];
  return { place, paths: driver.root_paths, home, own, readOnly, volumes: placeMounts(task, home) };
}

/** Throws for a command outside the files that a task with a private filesystem sees. */
function checkVisible(path: string, { own, paths, volumes }: Omit<RootAsked, "hasOwnProcesses">): void {
  const seen = [...rootPaths(paths), ...own, ...volumes.map(({ to }) => to)];
  if (!seen.some((folder) => path === folder || path.startsWith(`${folder}/`)))
    throw new Error(`${path} is not visible in a private filesystem, which has only ${seen.join(", ")}`);
}

/** Empty: the node's. */
function networkOf({ networkIsolationSpec: spec }: TaskConfig): string {
  return spec === null || spec.mode === Isolation.HOST ? "" : spec.path;
}

/**
 * A running task's network, through its process: the path from the host was valid for that host, which may have exited or
 * see other mounts than this driver.
 */
const networkOfTask = (pid: number): string => `/proc/${pid}/ns/net`;

/** `flags`: nsenter's, one per namespace. */
function joining(flags: readonly string[], tools: Tools): readonly string[] {
  if (flags.length === 0) return [];
  if (tools.nsenter === null) throw new Error("cannot join the task's network: nsenter is not installed on this node");
  return [tools.nsenter, ...flags, "--"];
}

function find(command: string, home: string, directory: string, root: string, searchPath: string): string {
  if (command.includes("/") || isAbsolute(command)) {
    const path = root === "" ? resolve(directory, command) : join("/", command);
    if (isExecutable(join(root, path))) return path;
    throw new Error(`${command} is not an executable file ${root === "" ? "on this node" : `in ${root}`}`);
  }
  const own = root === "" && home !== "" ? [join(home, "local", command), join(home, command)] : [];
  const path = own.find(isExecutable) ?? findOnPath(command, searchPath, root);
  if (path === null) throw new Error(`cannot find ${command} in the task's PATH`);
  return path;
}

interface LaunchOptions {
  readonly tools: Tools;
  readonly driver: DriverConfig;
  /** One of the driver's directories. */
  readonly place: string;
}

/** Throws if the task is invalid. */
export function launchOf({ config, task }: TaskRequest<ExecConfig>, { driver, place, tools }: LaunchOptions): Launch {
  if (config.command === "") throw new Error("the task has no command");
  const home = taskDirectory(task);
  const placed = (path: string | null): string => (path === null || path === "" ? "" : resolve(home || "/", path));
  const root = placed(config.chroot);
  if (root !== "" && !isDirectory(root)) throw new Error(`the directory ${root} does not exist on this node`);
  if (root !== "" && (config.work_dir ?? "") !== "")
    throw new Error("a task with a chroot cannot have a work_dir: it starts in its root");
  if (root !== "" && task.mounts.length > 0) throw new Error("a task with a chroot cannot have volumes");
  if (root !== "" && config.unveil.length > 0) throw new Error("a task with a chroot cannot have unveil");
  const directory = root === "" ? placed(config.work_dir) || home || "/" : "/";
  if (!isDirectory(directory)) throw new Error(`the directory ${directory} does not exist on this node`);
  const oomScoreAdj = config.oom_score_adj;
  if (!Number.isInteger(oomScoreAdj) || Math.abs(oomScoreAdj) > oomScoreMax)
    throw new Error(
      `invalid oom_score_adj ${oomScoreAdj}: expected a whole number from -${oomScoreMax} to ${oomScoreMax}`,
    );
  const user = userNamed(task.user);
  const isolation = isolationOf(config, driver, user);
  const env: Record<string, string> = { PATH: pathDefault, ...(user === null ? {} : { HOME: user.home }), ...task.env };
  for (const [name, value] of Object.entries(env)) {
    if (name === "" || /[=\0]/.test(name) || value.includes("\0"))
      throw new Error(`invalid environment variable ${JSON.stringify(name)}`);
  }
  if (root !== "" && process.getuid?.() !== 0)
    throw new Error("cannot change the task's root: the driver does not run as root on this node");
  const path = find(config.command, home, directory, root, env["PATH"] as string);
  const args = config.args;
  if (args.some((argument) => argument.includes("\0"))) throw new Error("an argument contains a null byte");
  const network = networkOf(task);
  const joinsNetwork = network === "" ? [] : [`--net=${network}`];
  const dns = askedDns(task.dns);
  const resolver = dns === null ? [] : ownResolver({ dns, root, isApart: network !== "", place }, tools);
  const command = [path, ...args];
  if (isolation === null) {
    // After every shell, since shells would drop them.
    const last = [...foreignNames(env, tools), ...rootAndUser(root, user, tools)];
    const prefix = [...joining(joinsNetwork, tools), ...resolver, ...last];
    const later = (pid: number): Later => {
      const mounts = dns === null ? null : inMountsOf(pid, directory);
      const flags = [
        ...(network === "" ? [] : [`--net=${networkOfTask(pid)}`]),
        ...(mounts === null ? [] : [mounts.flag]),
      ];
      const joins = [...joining(flags, tools), ...(mounts?.cd ?? [])];
      return { where: { prefix: [...joins, ...last], env, directory }, frame: { kind: "plain", joins, root, user } };
    };
    linkMounts(task, home);
    return { command, prefix, env, directory, oomScoreAdj, isSealed: false, later };
  }
  const { hasOwnFiles, hasOwnProcesses } = isolation;
  const own = task.allocDir === "" ? [] : [task.allocDir, ...linkedFolders(home)];
  const sealing: Sealing = { isolation, user, env, directory, root, own };
  const files = hasOwnFiles ? filesOf(task, driver, home, place) : null;
  if (files === null) linkMounts(task, home);
  else checkVisible(path, files);
  const inFiles = files === null ? null : { ...files, hasOwnProcesses };
  const prefix = [...joining(joinsNetwork, tools), ...sealed(sealing, tools, { files: inFiles, middle: resolver })];
  const hasMounts = hasOwnFiles || hasOwnProcesses || dns !== null;
  const later = (pid: number): Later => {
    const inTask: LaterPlace = { pid, network: network === "" ? "" : networkOfTask(pid), hasMounts };
    return {
      where: {
        prefix: sealedLater(sealing, tools, inTask),
        env,
        directory: isDirectory(directory) ? directory : "/",
        isJoined: hasOwnProcesses,
      },
      frame: { kind: "sealed", sealing: { isolation, user, directory, root, own }, place: inTask },
    };
  };
  return { command, prefix, env, directory, oomScoreAdj, isSealed: true, later };
}
