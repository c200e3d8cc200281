/**
 * Where tasks find their secrets and configs: files in memory, in a directory of each task that only its user can enter.
 *
 *   <root>/<tag of the tasks' directory>/<task id>/secrets/<name>, configs/<name>
 *
 * F1: nothing is written to an ordinary disk where the machine has a file system in memory that the agent may write to. A
 *     machine without one is said so in the log, once.
 * F2: a task's files are whole before it starts, and gone once nothing of it runs; what a killed agent left goes with the
 *     task's directory, or at the next start when that is gone already.
 */
import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { chmod, chown, lstat, mkdir, open, readdir, realpath, rm, rmdir, statfs } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Logger } from "../../runtime/ports.ts";
import type { TaskFile } from "./contents.ts";

/** From Linux's magic.h. */
const inMemory = new Set([0x01021994 /* tmpfs */, 0x858458f6 /* ramfs */]);

/** Beside the tasks' directories, whose names are ids. */
const onDisk = ".files";

export interface FileOwner {
  readonly uid: number;
  readonly gid: number;
}

export interface MemoryFilesOptions {
  /** Of the tasks; names these files among those of other agents of this machine. Absolute. */
  readonly directory: string;
  /** Where to look for a file system in memory, best first; absolute. */
  readonly roots: readonly string[];
  readonly log: Logger;
}

/** `/run` is the usual place; a container has often only `/dev/shm` in memory, which everybody may write to. */
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
  /** One change at a time: an empty directory goes, and must not go from under who is about to write there. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(options: MemoryFilesOptions) {
    this.#options = options;
  }

  /** The task's own directory; made by `write`, so there may be none. */
  async of(taskId: string): Promise<string> {
    this.#place ??= this.#choose();
    return join(await this.#place, taskId);
  }

  /** Makes the files anew. `owner`: who runs the task, null for the agent itself. Rejects when they cannot be made. F2 */
  write(taskId: string, files: readonly TaskFile[], owner: FileOwner | null): Promise<void> {
    return this.#inTurn(async () => {
      const home = await this.of(taskId);
      await rm(home, { recursive: true, force: true });
      await mkdir(dirname(home), { recursive: true });
      // Users of tasks pass through, but cannot see who else is here.
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

  /** Also where an earlier life of the agent, which found another place, put them. */
  remove(taskId: string): Promise<void> {
    return this.#inTurn(async () => {
      for (const place of await this.#places()) {
        await rm(join(place, taskId), { recursive: true, force: true });
        await rmdir(place).catch(() => {}); // others' files are there, or nothing is
      }
    });
  }

  /** Removes the files of all tasks that `isKnown` does not know. */
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
      "no file system in memory: secrets of tasks are written to the disk of this node",
    );
    return places.at(-1) as string;
  }

  /** One for each root, and at last one on the disk. */
  async #places(): Promise<readonly string[]> {
    const { directory, roots } = this.#options;
    const real = await realpath(directory).catch(() => directory);
    const tag = createHash("sha256").update(real).digest("hex").slice(0, 16);
    return [...roots.map((root) => join(root, tag)), join(directory, onDisk)];
  }
}

/** Whether the root is in memory and this agent's alone, made if need be: in `/dev/shm` anybody may have made it before. */
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
    return false; // not there, or not ours to write to
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
  // Closed to all until it has its owner.
  const file = await open(
    path,
    constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW,
    0o600,
  );
  try {
    await file.writeFile(data);
    // Only root can give files away; an agent that is not runs tasks as itself, whose files these then are.
    if (process.getuid?.() === 0) await file.chown(uid, gid);
    await file.chmod(mode);
  } finally {
    await file.close();
  }
}
