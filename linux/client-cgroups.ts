/**
 * Control groups like those that Nomad's client creates for its drivers' tasks, and that their executors require: a task starts
 * in them, and leftover processes in them are killed.
 *
 *   version 1   <root>/{freezer,memory,cpu}/nomad/<task id>.<name>, and <root>/cpuset/nomad/share for all
 *   version 2   <root>/nomad.slice/share/<task id>.<name>.scope
 *
 * CC1: once `end` has resolved, no process of the task's groups is running.
 */
import { existsSync } from "node:fs";
import { mkdir, readFile, readdir, rmdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { TaskCgroups } from "../actors/agent/ports.ts";
import type { Clock, Logger } from "../runtime/ports/index.ts";

/** Where Nomad's drivers look, whatever is mounted elsewhere. */
const rootDefault = "/sys/fs/cgroup";
const separate = ["freezer", "memory", "cpu"] as const;
const delegated = ["cpuset", "cpu", "io", "memory", "pids"] as const;
/** A killed process leaves its group only once it is reaped. */
const removeMsMax = 10_000;
const pollMs = 50;

interface ClientCgroupsOptions {
  readonly clock: Clock;
  readonly log: Logger;
  /** Processors of the node, such as `0-3`. */
  readonly cpus: string;
  readonly root?: string;
  /** Sends SIGKILL; ignores processes that have exited. */
  readonly kill: (pid: number) => void;
}

/** Null if the node has no usable groups: not those that drivers look for, or no permission. */
export async function clientCgroups(options: ClientCgroupsOptions): Promise<TaskCgroups | null> {
  const { log, root = rootDefault } = options;
  try {
    if (existsSync(join(root, "cgroup.controllers"))) {
      await makeUnified(root, options.cpus);
      return new UnifiedCgroups(root, options);
    }
    if (!existsSync(join(root, "freezer"))) return null;
    await makeSeparate(root, options.cpus);
    return new SeparateCgroups(root, options);
  } catch (error) {
    log.warn(
      { reason: (error as Error).message },
      "cannot create the control groups of Nomad's client: drivers such as raw_exec cannot start tasks here",
    );
    return null;
  }
}

/** Created for the first task that needs them: a node with only our own drivers never does. */
export function lazyCgroups(options: ClientCgroupsOptions): TaskCgroups {
  let created: Promise<TaskCgroups | null> | null = null;
  const cgroups = (): Promise<TaskCgroups | null> => (created ??= clientCgroups(options));
  return {
    make: async (taskId, name) => (await (await cgroups())?.make(taskId, name)) ?? "",
    end: async (taskId, name) => (await cgroups())?.end(taskId, name),
  };
}

async function makeSeparate(root: string, cpus: string): Promise<void> {
  for (const controller of [...separate, "cpuset"]) await mkdir(join(root, controller, "nomad"), { recursive: true });
  const memory = await readFile(join(root, "cpuset", "cpuset.mems"), "utf8");
  for (const group of ["nomad", "nomad/share", "nomad/reserve"]) {
    const folder = join(root, "cpuset", group);
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, "cgroup.clone_children"), "0");
    await writeFile(join(folder, "cpuset.mems"), memory.trim());
    // The reserve's processors are for dedicated cores, which no service requests.
    if (group !== "nomad/reserve") await writeFile(join(folder, "cpuset.cpus"), cpus);
  }
}

async function makeUnified(root: string, cpus: string): Promise<void> {
  const slice = join(root, "nomad.slice");
  const below = [join(slice, "share"), join(slice, "reserve")];
  for (const folder of below) await mkdir(folder, { recursive: true });
  for (const folder of [root, slice, ...below]) {
    const file = join(folder, "cgroup.subtree_control");
    const there = new Set((await readFile(file, "utf8").catch(() => "")).trim().split(/\s+/));
    const missing = delegated.filter((controller) => !there.has(controller));
    if (missing.length > 0) await writeFile(file, missing.map((controller) => `+${controller}`).join(" "));
  }
  for (const folder of [slice, join(slice, "share")]) await writeFile(join(folder, "cpuset.cpus"), cpus);
}

abstract class ClientCgroups implements TaskCgroups {
  protected readonly root: string;
  readonly #options: ClientCgroupsOptions;

  constructor(root: string, options: ClientCgroupsOptions) {
    this.root = root;
    this.#options = options;
  }

  abstract make(taskId: string, name: string): Promise<string>;
  protected abstract folders(taskId: string, name: string): readonly string[];
  /** Sends SIGKILL to every process of the groups, in such a way that none can start another meanwhile. */
  protected abstract killAll(folder: string): Promise<void>;

  protected kill(pids: readonly number[]): void {
    for (const pid of pids) this.#options.kill(pid);
  }

  /** CC1 */
  async end(taskId: string, name: string): Promise<void> {
    const { clock, log } = this.#options;
    const folders = this.folders(taskId, name);
    const [first] = folders;
    if (first === undefined) return;
    for (let waited = 0; ; waited += pollMs) {
      if ((await membersOf(first)).length > 0) await this.killAll(first);
      const left = await removed(folders);
      if (left.length === 0) return;
      if (waited >= removeMsMax) {
        log.error({ task: taskId, folders: left }, "cannot remove a task's control groups: processes may be left");
        return;
      }
      await new Promise<void>((resolve) => clock.setTimeout(resolve, pollMs));
    }
  }
}

class SeparateCgroups extends ClientCgroups {
  async make(taskId: string, name: string): Promise<string> {
    for (const folder of this.folders(taskId, name)) await mkdir(folder, { recursive: true });
    return join(this.root, "cpuset", "nomad", "share");
  }

  protected folders(taskId: string, name: string): readonly string[] {
    return separate.map((controller) => join(this.root, controller, "nomad", `${taskId}.${name}`));
  }

  protected async killAll(freezer: string): Promise<void> {
    const state = join(freezer, "freezer.state");
    await writeFile(state, "FROZEN");
    this.kill(await membersOf(freezer));
    await writeFile(state, "THAWED");
  }
}

class UnifiedCgroups extends ClientCgroups {
  async make(taskId: string, name: string): Promise<string> {
    const [folder = ""] = this.folders(taskId, name);
    await mkdir(folder, { recursive: true });
    return folder;
  }

  protected folders(taskId: string, name: string): readonly string[] {
    return [join(this.root, "nomad.slice", "share", `${taskId}.${name}.scope`)];
  }

  protected async killAll(folder: string): Promise<void> {
    await writeFile(join(folder, "cgroup.kill"), "1");
  }
}

async function membersOf(folder: string): Promise<readonly number[]> {
  const text = await readFile(join(folder, "cgroup.procs"), "utf8").catch(() => "");
  return text.split("\n").filter(Boolean).map(Number);
}

/** Removes the folders and returns those still in use. A driver may have created groups below, which are removed too. */
async function removed(folders: readonly string[]): Promise<readonly string[]> {
  const left: string[] = [];
  for (const folder of folders) {
    const below = (await readdir(folder, { withFileTypes: true }).catch(() => []))
      .filter((entry) => entry.isDirectory())
      .map((entry) => join(folder, entry.name));
    const isLeft = (await removed(below)).length > 0;
    const isRemoved =
      !isLeft &&
      (await rmdir(folder).then(
        () => true,
        (error: NodeJS.ErrnoException) => error.code === "ENOENT",
      ));
    if (!isRemoved) left.push(folder);
  }
  return left;
}
