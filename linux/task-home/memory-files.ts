/**
 * Where tasks find their secrets and configs: files in memory, in a directory per task that only its user can enter.
 *
 *   <root>/<tag of the tasks' directory>/<task id>/secrets/<name>, configs/<name>
 *
 * F1: nothing is written to a disk if the machine has an in-memory file system that the agent may write to. If it has none, the
 *     log says so, once.
 * F2: a task's files are complete before it starts, and removed once it has stopped; what a killed agent left is removed with
 *     the task's directory, or at the next start if that is removed already.
 */
import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { chmod, chown, lstat, mkdir, open, readdir, realpath, rm, rmdir, statfs } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Logger } from "../../runtime/ports/index.ts";
import type { TaskFile } from "./contents.ts";

/** From Linux's magic.h. */
const inMemory = new Set([0x01021994 /* tmpfs */, 0x858458f6 /* ramfs */]);

/** Next to the tasks' directories, whose names are ids. */
const onDisk = ".files";

export interface FileOwner {
  readonly uid: number;
  readonly gid: number;
}

interface MemoryFilesOptions {
  /** The tasks' directory; distinguishes these files from those of other agents on this machine. Absolute. */
  readonly directory: string;
  /** Where to look for an in-memory file system, best first; absolute. */
  readonly roots: readonly string[];
  readonly log: Logger;
}

/** `/run` is the usual place; in containers, often only `/dev/shm` is in memory, and anyone may write to it. */
export function memoryRoots(runtimeDirectory: string | undefined): readonly string[] {
  const uid = process.getuid?.() ?? 0;
  return uid === 0
    ? ["/run/muster-files", "/dev/shm/muster-files-0"]
    : [
        ...(runtimeDirectory === undefined ? [] : [join(runtimeDirectory, "muster-files")]),
        `/dev/shm/muster-files-${uid}`,
      ];
}

export class MemoryFiles {
  readonly #options: MemoryFilesOptions;
  #place: Promise<string> | null = null;
  /** Serializes changes: an empty directory is removed, but not while something is about to be written there. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(options: MemoryFilesOptions) {
    this.#options = options;
  }

  /** The task's own directory; `write` creates it, so it may not exist yet. */
  async of(taskId: string): Promise<string> {
    this.#place ??= this.#choose();
    return join(await this.#place, taskId);
  }

  /**
   * Creates or replaces the files. `owner`: the task's user, null for the agent's own. Rejects if they cannot be written. F2
   */
  write(taskId: string, files: readonly TaskFile[], owner: FileOwner | null): Promise<void> {
    return this.#inTurn(async () => {
      const home = await this.of(taskId);
      await rm(home, { recursive: true, force: true });
      await mkdir(dirname(home), { recursive: true });
      // Tasks' users can traverse the directory, but not list it.
      await chmod(dirname(home), 0o711);
      await makeDirectory(home, owner);
      for (const kind of ["secrets", "configs"] as const) {
        const top = join(home, kind);
        await makeDirectory(top, owner);
        for (const file of files) {
          if (file.kind !== kind) continue;
          const path = join(top, file.path);
          for (const folder of between(top, dirname(path))) await makeDirectory(folder, owner);
          await writeFile(path, file);
        }
      }
    });
  }

  /** Also removes what an earlier run of the agent, which chose another place, put there. */
  remove(taskId: string): Promise<void> {
    return this.#inTurn(async () => {
      for (const place of await this.#places()) {
        await rm(join(place, taskId), { recursive: true, force: true });
        await rmdir(place).catch(() => {}); // it contains other files, or does not exist
      }
    });
  }

  /** Removes the files of all tasks for which `isKnown` resolves to false. */
  sweep(isKnown: (taskId: string) => Promise<boolean>): Promise<void> {
    return this.#inTurn(async () => {
      for (const place of await this.#places()) {
        for (const taskId of await readdir(place).catch(() => [])) {
          if (!(await isKnown(taskId))) await rm(join(place, taskId), { recursive: true, force: true });
        }
        await rmdir(place).catch(() => {});
      }
    });
  }

  #inTurn<T>(act: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(act);
    this.#turn = turn.catch(() => {});
    return turn;
  }

  /** F1 */
  async #choose(): Promise<string> {
    const { log, roots } = this.#options;
    const places = await this.#places();
    for (const [at, root] of roots.entries()) if (await isOurs(root)) return places[at] as string;
    log.warn(
      { looked: roots.map((root) => dirname(root)) },
      "no in-memory file system: secrets of tasks are written to this node's disk",
    );
    return places.at(-1) as string;
  }

  /** One for each root, and finally one on the disk. */
  async #places(): Promise<readonly string[]> {
    const { directory, roots } = this.#options;
    const real = await realpath(directory).catch(() => directory);
    const tag = createHash("sha256").update(real).digest("hex").slice(0, 16);
    return [...roots.map((root) => join(root, tag)), join(directory, onDisk)];
  }
}

/**
 * Whether the root is in memory and belongs to this agent, creating it if necessary: in `/dev/shm`, anyone may have created it
 * before.
 */
async function isOurs(root: string): Promise<boolean> {
  try {
    if (!inMemory.has((await statfs(dirname(root))).type)) return false;
    await mkdir(root, { mode: 0o711 }).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "EEXIST") throw error;
    });
    const facts = await lstat(root);
    if (!facts.isDirectory() || facts.uid !== process.getuid?.()) return false;
    await chmod(root, 0o711);
    return true;
  } catch {
    return false; // absent, or not writable for this agent
  }
}

async function makeDirectory(path: string, owner: FileOwner | null): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 });
  if (owner !== null) await chown(path, owner.uid, owner.gid);
}

function between(top: string, folder: string): readonly string[] {
  const folders: string[] = [];
  for (let at = folder; at.length > top.length; at = dirname(at)) folders.unshift(at);
  return folders;
}

async function writeFile(path: string, { data, gid, mode, uid }: TaskFile): Promise<void> {
  // Inaccessible until it has its owner.
  const file = await open(
    path,
    constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW,
    0o600,
  );
  try {
    await file.writeFile(data);
    // Only root can change owners; other agents run tasks as their own user, who then owns these files.
    if (process.getuid?.() === 0) await file.chown(uid, gid);
    await file.chmod(mode);
  } finally {
    await file.close();
  }
}
