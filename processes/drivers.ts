/** The driver plugins of an agent: those chosen by its flags, and those in `plugins/` in its data dir. */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, rmdirSync } from "node:fs";
import { cpus } from "node:os";
import { basename, join, resolve } from "node:path";
import type { AgentPlugins, DriverBinary } from "../actors/agent/ports.ts";
import { TaskHomeDirectories } from "../linux/task-home/homes.ts";
import { lazyCgroups } from "../linux/client-cgroups.ts";
import { ownFolder } from "../linux/own-folder.ts";
import { taskUser, type TaskUserPolicy } from "../linux/task-users.ts";
import { portRange } from "../edges/plugin/handshake.ts";
import { createPluginLauncher } from "../edges/plugin/host/launcher.ts";
import { ClientTopology, ClientTopologyCore, NomadDriverConfig } from "../proto/gen/nomad.ts";
import type { Clock, Logger } from "../runtime/ports/index.ts";
import { driverStart } from "../lib/installation.ts";
import { UsageError, UserError } from "../lib/user-error.ts";
import { isExecutable } from "../linux/system-tools.ts";

/** A JSON value. */
export type PlainValue =
  | null
  | boolean
  | number
  | string
  | readonly PlainValue[]
  | { readonly [key: string]: PlainValue };

export interface DriverChoice {
  /** Directories of plugins, in addition to the data dir's own. */
  readonly directories: readonly string[];
  /** Paths by name; null disables the driver. */
  readonly named: ReadonlyMap<string, string | null>;
  readonly configs: ReadonlyMap<string, { readonly [key: string]: PlainValue } | null>;
  readonly users: TaskUserPolicy;
}

const userDefault = "nobody";

/**
 * Users that tasks run as; an agent without root runs every process task as its own user. Throws UsageError for an unknown
 * user, and for root where it is not allowed.
 */
export function taskUsers(
  values: { readonly "task-user"?: string | undefined; readonly "allow-root"?: boolean | undefined },
  isRoot = process.getuid?.() === 0,
): TaskUserPolicy {
  const { "allow-root": allowsRoot = false, "task-user": named } = values;
  const users = { fallback: named ?? (isRoot ? userDefault : ""), allowsRoot };
  if (named === undefined) return users;
  const found = taskUser(named, users);
  if (found.kind === "refused") throw new UsageError(`cannot run tasks as ${named} (--task-user): ${found.reason}`);
  return users;
}

/** Names of drivers occur in file names and log lines. */
export const driverName = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;

interface DriverPlaces {
  readonly dataDir: string;
  readonly clock: Clock;
  readonly log: Logger;
}

interface OpenDrivers {
  readonly plugins: AgentPlugins;
  /** Call after all plugins have stopped. */
  release(): void;
}

/** Null: this node has no driver plugins. Throws UserError. */
export function openDrivers(choice: DriverChoice, { clock, dataDir, log }: DriverPlaces): OpenDrivers | null {
  const binaries = binariesOf(choice, join(resolve(dataDir), "plugins"));
  if (binaries.length === 0) return null;
  const run = runDirectory(resolve(dataDir));
  const plugins: AgentPlugins = {
    launcher: createPluginLauncher({
      log,
      logDir: join(resolve(dataDir), "plugin-logs"),
      socketDir: run,
      env: process.env,
    }),
    homes: new TaskHomeDirectories({
      directory: resolve(dataDir, "allocs"),
      outputSocket: join(run, "output.sock"),
      clock,
      log,
      environment: process.env,
      users: choice.users,
    }),
    cgroups: lazyCgroups({
      clock,
      log,
      cpus: onlineText(),
      kill: (pid) => {
        try {
          process.kill(pid, "SIGKILL");
        } catch {
          // It has already exited.
        }
      },
    }),
    binaries,
    agent: nodeConfig(),
  };
  return { plugins, release: () => removeEmpty(run) };
}

/** Removes a run directory (it may be in /tmp) unless it has sockets of running plugins. */
function removeEmpty(directory: string): void {
  try {
    rmdirSync(directory);
  } catch {
    // Plugins of this node's tasks are still running.
  }
}

/** Prefix of our own drivers' executables. */
const ownPrefix = "muster-driver-";
/** The process driver, which every agent has. */
const ownDriver = "exec";

function binariesOf({ configs, directories, named }: DriverChoice, own: string): readonly DriverBinary[] {
  const paths = new Map([...named].filter((entry): entry is [string, string] => entry[1] !== null));
  for (const directory of [own, ...directories]) {
    for (const path of executablesIn(directory, directory === own)) {
      const name = basename(path);
      if (paths.has(name))
        throw new UserError(`two driver plugins have the name "${name}": ${paths.get(name)} and ${path}`);
      paths.set(name, path);
    }
  }
  const isReplaced =
    named.has(ownDriver) || [...paths.values()].some((path) => basename(path) === `${ownPrefix}${ownDriver}`);
  const installed = driverStart(ownDriver);
  if (!isReplaced && !paths.has(ownDriver)) paths.set(ownDriver, installed.command);
  for (const name of configs.keys())
    if (!paths.has(name)) throw new UserError(`--driver-config ${name}: no such driver plugin`);
  return [...paths].map(([name, path]) => {
    if (!isExecutable(path)) throw new UserError(`driver plugin "${name}": ${path} is not an executable file`);
    const config = configs.get(name) ?? null;
    const isInstalled = path === installed.command;
    const { args } = isInstalled ? installed : { args: [] };
    const makesCgroups = isInstalled || basename(path).startsWith(ownPrefix);
    return { binary: { name, path, args, env: {}, autoMtls: false }, config, makesCgroups };
  });
}

function executablesIn(directory: string, mayBeMissing: boolean): readonly string[] {
  try {
    return readdirSync(directory)
      .filter((name) => driverName.test(name))
      .map((name) => join(directory, name))
      .filter(isExecutable)
      .sort();
  } catch (error) {
    if (mayBeMissing && (error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw new UserError(`cannot read the plugin directory ${directory}: ${(error as Error).message}`, {
      cause: error,
    });
  }
}

/**
 * A socket's whole path has at most 107 bytes: sockets are in `run` in the data dir, or else in a directory elsewhere for that
 * data dir.
 */
const runDirectoryMax = 60;

function runDirectory(dataDir: string): string {
  const own = join(dataDir, "run");
  const uid = process.getuid?.() ?? 0;
  const tag = createHash("sha256").update(dataDir).digest("hex").slice(0, 12);
  const path = own.length <= runDirectoryMax ? own : `/tmp/muster-run-${uid}-${tag}`;
  try {
    return ownFolder(path);
  } catch (error) {
    throw new UserError(`cannot create the directory for the sockets of driver plugins: ${(error as Error).message}`, {
      cause: error,
    });
  }
}

/** MHz assumed for a processor that does not report it; Nomad's arithmetic only needs some value. */
const speedDefault = 1_000;

function nodeConfig(): NomadDriverConfig {
  const online = onlineCores();
  const cores = cpus().map(({ speed }, at) => {
    const mhz = speed || speedDefault;
    return ClientTopologyCore.create({ coreId: online[at] ?? at, baseSpeed: mhz, maxSpeed: mhz });
  });
  return NomadDriverConfig.create({
    ClientMinPort: portRange.min,
    ClientMaxPort: portRange.max,
    Topology: ClientTopology.create({ nodeIds: [0], cores }),
  });
}

/** Ids of the online processors; offline ones leave gaps. */
function onlineCores(): readonly number[] {
  return onlineText()
    .split(",")
    .filter(Boolean)
    .flatMap((range) => {
      const [from = 0, to = from] = range.split("-").map(Number);
      return Array.from({ length: to - from + 1 }, (_, at) => from + at);
    });
}

/** The kernel's list, such as `0-3,5`; empty when it has none. */
function onlineText(): string {
  try {
    return readFileSync("/sys/devices/system/cpu/online", "utf8").trim();
  } catch {
    return "";
  }
}
