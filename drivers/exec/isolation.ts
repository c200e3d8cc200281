/**
 * Isolates a task from its node and from other tasks: turns the settings of operator and task into programs to run before its
 * command.
 *
 * I1: a task whose isolation is unavailable is refused; it never runs with less than requested.
 * I2: a task weakens only what the operator permits: namespaces as under Nomad, everything else with `allow_unconfined`.
 */
import { readFileSync } from "node:fs";
import type { User } from "../../linux/user.ts";
import type { Tools } from "../../linux/system-tools.ts";
import { capabilitiesOf, capabilityNumber, type TaskCapabilities } from "./capabilities.ts";
import type { DriverConfig, ExecConfig } from "./fields.ts";
import { unveil } from "./landlock.ts";
import { buildRoot, mountProc, type RootAsked } from "./private-root.ts";
import { shell } from "./run-file.ts";
import { SealingPlan } from "./sealing.ts";
import { hasSeccompProfile, seccompProgram } from "./seccomp.ts";

/** The kernel's numbers. */
const prctl = { keepCapabilities: 8, dropBounding: 24, noNewPrivileges: 38, ambient: 47 };
const ambient = { raise: 2, clear: 4 };
const capabilityVersion = 0x2008_0522;

/** First process of a PID namespace: reaps orphans, and cannot be killed by signals from inside. */
const first = '( exec "$@" 5>&- 6>&- ); exit $?';

interface Isolation {
  readonly hasOwnProcesses: boolean;
  readonly hasOwnIpc: boolean;
  readonly hasOwnFiles: boolean;
  readonly capabilities: TaskCapabilities;
  readonly noNewPrivileges: boolean;
  readonly seccomp: boolean;
  readonly unveil: readonly string[];
}

function isPrivate(what: string, asked: string | null, otherwise: boolean): boolean {
  if (asked === null || asked === "") return otherwise;
  if (asked !== "private" && asked !== "host") throw new Error(`invalid ${what} "${asked}": expected private or host`);
  return asked === "private";
}

function isFull({ isolation }: Pick<DriverConfig, "isolation">): boolean {
  if (isolation !== "full" && isolation !== "none")
    throw new Error(`invalid isolation "${isolation}": expected full or none`);
  return isolation === "full";
}

/** Throws if the driver's configuration is invalid. */
export function checkDriver(config: DriverConfig): void {
  isFull(config);
  isPrivate("default_pid_mode", config.default_pid_mode, true);
  isPrivate("default_ipc_mode", config.default_ipc_mode, true);
  capabilitiesOf({ allow: config.allow_caps, add: [], drop: [], isRoot: true });
  const relative = (config.root_paths ?? []).find((path) => !path.startsWith("/"));
  if (relative !== undefined) throw new Error(`root_paths: "${relative}" is not an absolute path`);
}

/** Why the node does not support the driver's configuration; null if it does. */
export function lacking(config: DriverConfig, tools: Tools): string | null {
  if (!isFull(config)) return null;
  const otherwise = 'or start the driver with isolation = "none"';
  if (tools.perl === null) return `cannot isolate tasks: perl is not installed on this node; install it, ${otherwise}`;
  if (process.getuid?.() === 0 && tools.unshare === null)
    return `cannot isolate tasks: unshare is not installed on this node; install util-linux, ${otherwise}`;
  return hasSeccompProfile(process.arch)
    ? null
    : `cannot isolate tasks on ${process.arch} processors; use another node, ${otherwise}`;
}

/** Null: the task is a plain process of the node. Throws if the task is refused. */
export function isolationOf(config: ExecConfig, driver: DriverConfig, user: User | null): Isolation | null {
  const isFullByDefault = isFull(driver);
  const isDriverRoot = process.getuid?.() === 0;
  const isRule = isFullByDefault && isDriverRoot;
  const hasOwnProcesses = isPrivate(
    "pid_mode",
    config.pid_mode,
    isPrivate("default_pid_mode", driver.default_pid_mode, isRule),
  );
  const hasOwnIpc = isPrivate(
    "ipc_mode",
    config.ipc_mode,
    isPrivate("default_ipc_mode", driver.default_ipc_mode, isRule),
  );
  const hasOwnFiles = isPrivate("filesystem", config.filesystem, false);
  if (hasOwnFiles && (config.chroot ?? "") !== "")
    throw new Error("a task cannot have both a chroot and a private filesystem");
  const profile = config.seccomp || (isFullByDefault ? "default" : "unconfined");
  if (profile !== "default" && profile !== "unconfined")
    throw new Error(`invalid seccomp "${profile}": expected default or unconfined`);
  const noNewPrivileges = config.no_new_privileges ?? isFullByDefault;
  if (isFullByDefault && !driver.allow_unconfined && (profile === "unconfined" || !noNewPrivileges))
    throw new Error(
      "this node does not allow tasks without seccomp or no_new_privileges (the driver's allow_unconfined)",
    ); // I2
  const isLimited = config.unveil.length > 0;
  if ((isLimited || profile === "default") && !noNewPrivileges)
    throw new Error("seccomp and unveil require no_new_privileges");
  const capabilities = capabilitiesOf({
    allow: driver.allow_caps,
    add: config.cap_add,
    drop: config.cap_drop,
    isRoot: isDriverRoot && user === null,
  });
  const asks = config.cap_add.length > 0 || config.cap_drop.length > 0 || driver.allow_caps !== null;
  const isPlain = ![hasOwnProcesses, hasOwnIpc, hasOwnFiles, noNewPrivileges, isLimited, asks].includes(true);
  if (isPlain && !isFullByDefault) return null;
  if (!isDriverRoot && (hasOwnProcesses || hasOwnIpc || hasOwnFiles || asks))
    throw new Error("namespaces, capabilities and a private filesystem require a driver that runs as root"); // I1
  return {
    hasOwnProcesses,
    hasOwnIpc,
    hasOwnFiles,
    capabilities,
    noNewPrivileges,
    seccomp: profile === "default",
    unveil: config.unveil,
  };
}

function lastCapability(): number {
  return Number(readFileSync("/proc/sys/kernel/cap_last_cap", "latin1"));
}

function words(...numbers: readonly number[]): Uint8Array {
  const bytes = Buffer.alloc(numbers.length * 4);
  numbers.forEach((number, at) => bytes.writeUInt32LE(number >>> 0, at * 4));
  return bytes;
}

/** As root: switches to the user, with its capabilities. */
function becomeUser(plan: SealingPlan, user: User | null, { bounding, own }: TaskCapabilities): void {
  const kept = new Set(bounding.map(capabilityNumber));
  for (let number = 0; number <= lastCapability(); number += 1)
    if (!kept.has(number)) plan.call("drop a capability", "prctl", prctl.dropBounding, number, 0, 0, 0);
  const given = own.map(capabilityNumber);
  if (user !== null) {
    const { gid, groups, uid } = user;
    if (given.length > 0) plan.call("keep capabilities", "prctl", prctl.keepCapabilities, 1, 0, 0, 0);
    plan.call("leave the groups", "setgroups", groups.length, words(...groups));
    plan.call("change the group", "setresgid", gid, gid, gid);
    plan.call("change the user", "setresuid", uid, uid, uid);
  }
  const sums = [0, 1].map((part) =>
    given.filter((number) => number >> 5 === part).reduce((sum, number) => sum + 2 ** (number & 31), 0),
  );
  const inherited = user === null ? [0, 0] : sums;
  const [low = 0, high = 0] = sums;
  const sets = words(low, low, inherited[0] ?? 0, high, high, inherited[1] ?? 0);
  plan.call("limit the capabilities", "capset", words(capabilityVersion, 0), sets);
  plan.call("clear the ambient capabilities", "prctl", prctl.ambient, ambient.clear, 0, 0, 0);
  if (user === null) return;
  for (const number of given)
    plan.call("raise an ambient capability", "prctl", prctl.ambient, ambient.raise, number, 0, 0);
}

export interface Sealing {
  readonly isolation: Isolation;
  readonly user: User | null;
  readonly env: Readonly<Record<string, string>>;
  readonly directory: string;
  /** The task's root for `chroot`; empty: the node's. */
  readonly root: string;
  readonly own: readonly string[];
}

/** Restrictions of a task and of commands run in it later. */
function restrict(plan: SealingPlan, { env, isolation, own, user }: Sealing): void {
  for (const [name, value] of Object.entries(env)) if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) plan.env(name, value);
  const { capabilities, noNewPrivileges } = isolation;
  if (process.getuid?.() === 0) becomeUser(plan, user, capabilities);
  if (noNewPrivileges) plan.call("set no_new_privileges", "prctl", prctl.noNewPrivileges, 1, 0, 0, 0);
  if (isolation.unveil.length > 0) unveil(plan, isolation.unveil, own);
}

function filter(plan: SealingPlan, { capabilities, seccomp }: Isolation): void {
  if (seccomp) plan.filter("load the seccomp profile", seccompProgram(process.arch, capabilities.bounding));
}

function chrootInto(plan: SealingPlan, root: string): void {
  plan.enter(root).call("change the root", "chroot", ".");
  plan.enter("/");
}

/** The programs before a task's command. `middle`: those that prepare its mounts. */
export function sealed(
  sealing: Sealing,
  tools: Tools,
  { files, middle }: { readonly files: RootAsked | null; readonly middle: readonly string[] },
): readonly string[] {
  const { isolation, root } = sealing;
  const { hasOwnIpc, hasOwnProcesses } = isolation;
  const plan = new SealingPlan().toDriver();
  if (hasOwnProcesses) plan.call("create a process group", "setpgid", 0, 0);
  if (files !== null) buildRoot(plan, files);
  else if (hasOwnProcesses) mountProc(plan, "/proc");
  if (root !== "") chrootInto(plan, root);
  plan.enter(sealing.directory);
  restrict(plan, sealing);
  filter(plan, isolation);
  plan.announce();
  const spaces = [
    ...(hasOwnProcesses || files !== null ? ["--mount", "--propagation", "slave"] : []),
    ...(hasOwnIpc ? ["--ipc"] : []),
    ...(hasOwnProcesses ? ["--pid", "--fork", "--kill-child"] : []),
  ];
  const begin = spaces.length === 0 ? [] : [needed("unshare", tools.unshare), ...spaces, "--"];
  const init = hasOwnProcesses ? [shell, "-c", first, "sh"] : [];
  return [...begin, ...init, ...middle, ...plan.prefix(needed("perl", tools.perl))];
}

/** Where a later command joins its task. */
export interface LaterPlace {
  /** The task's main process. */
  readonly pid: number;
  /** Empty: the node's. */
  readonly network: string;
  readonly hasMounts: boolean;
}

/** The programs before a command that is run in the task later. `directory`: of the command, entered as its user; empty: the task's. */
export function sealedLater(
  sealing: Sealing,
  tools: Tools,
  { directory = "", hasMounts, network, pid }: LaterPlace & { readonly directory?: string },
): readonly string[] {
  const { isolation, root } = sealing;
  const own = (name: string): string => `/proc/${pid}/ns/${name}`;
  const plan = new SealingPlan();
  plan.join([
    ...(network === "" ? [] : [network]),
    ...(isolation.hasOwnIpc ? [own("ipc")] : []),
    ...(isolation.hasOwnProcesses ? [own("pid")] : []),
    ...(hasMounts ? [own("mnt")] : []),
  ]);
  if (isolation.hasOwnProcesses) plan.fork();
  if (root !== "") chrootInto(plan, root);
  plan.enter(sealing.directory);
  restrict(plan, sealing);
  if (directory !== "") plan.enter(directory);
  filter(plan, isolation);
  return plan.prefix(needed("perl", tools.perl));
}

/** I1 */
function needed(name: string, path: string | null): string {
  if (path === null) throw new Error(`cannot isolate the task: ${name} is not installed on this node`);
  return path;
}
