/**
 * The folder in which a process keeps what must outlive it.
 *
 * D1: one live process owns a data dir; a second one is told who has it.
 * D2: everything in it is readable by its owner only.
 * D3: a file is either its old or its new content, whatever dies when.
 */
import { chmodSync, mkdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { replaceFileSync } from "../../runtime/system/whole-file.ts";
import { UserError } from "../user-error.ts";

export interface DataDir {
  readonly path: string;
  read(name: string): string | null;
  /** On the disk when this returns. Throws the file system's error, with the old content in place. D3 */
  write(name: string, text: string): void;
  /** Nothing happens where no such file or directory. */
  remove(name: string): void;
  /** Gives up the ownership; the files stay. */
  release(): void;
}

/** Where `muster up` keeps its state when it is not told. */
export function defaultDataDir(): string {
  if (process.getuid?.() === 0) return "/var/lib/muster";
  return join(process.env["XDG_DATA_HOME"] ?? join(homedir(), ".local", "share"), "muster");
}

/** When the process of that pid started, in clock ticks since boot; null when there is none. Guards against reused pids. */
function startTicks(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const [state, ...rest] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return state === "Z" ? null : (rest[18] ?? null);
  } catch {
    return null;
  }
}

/** Permission to pass through a folder, of its group and of others. */
const passable = 0o011;

export function cannotWrite(path: string, error: unknown): UserError {
  const reason = (error as Error).message;
  return new UserError(`the data dir ${path} cannot be written (${reason}): choose another with --data-dir`, {
    cause: error,
  });
}

/**
 * Throws UserError when the folder cannot be written or another live process owns it. `letsTasksThrough`: other users may pass
 * through it to the directories of their tasks, without seeing what else is in it; each of those has permissions of its own.
 */
export function openDataDir(path: string, letsTasksThrough = false): DataDir {
  const owner = join(path, "owner");
  try {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    if (letsTasksThrough) chmodSync(path, statSync(path).mode | passable);
    const [pid, ticks] = readOr(owner, "").split(" ");
    if (pid !== undefined && pid !== "" && Number(pid) !== process.pid && startTicks(Number(pid)) === ticks) {
      throw new UserError(
        `the data dir ${path} is in use by process ${pid}: stop that one, or choose another with --data-dir`,
      );
    }
    replaceFileSync(owner, `${process.pid} ${startTicks(process.pid)}`);
  } catch (error) {
    if (error instanceof UserError) throw error;
    throw cannotWrite(path, error);
  }
  return {
    path,
    read: (name) => readOr(join(path, name), null),
    write: (name, text) => replaceFileSync(join(path, name), text),
    remove: (name) => rmSync(join(path, name), { force: true }),
    release: () => rmSync(owner, { force: true }),
  };
}

function readOr<Else>(path: string, otherwise: Else): string | Else {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return otherwise;
    throw error;
  }
}
