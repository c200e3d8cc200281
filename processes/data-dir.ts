/**
 * The folder for a process's persistent state.
 *
 * D1: one live process owns a data dir; a second one fails with the owner's pid.
 * D2: everything in it is readable by its owner only.
 * D3: a file has either its old or its new content, even after a crash.
 * D4: a process changes nothing in a data dir of a newer format than it knows (docs/adr/0058-versions-of-formats.md).
 */
import { chmodSync, mkdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { replaceFileSync } from "../runtime/system/whole-file.ts";
import { UserError } from "../lib/user-error.ts";
import { version } from "../lib/version.ts";

export interface DataDir {
  readonly path: string;
  read(name: string): string | null;
  /** Durable on return. Throws the file system's error, with the old content in place. D3 */
  write(name: string, text: string): void;
  /** Does nothing when the file does not exist. */
  remove(name: string): void;
  /** Releases the ownership; the files stay. */
  release(): void;
}

/**
 * Format of the files of a manager or an agent; one higher with each change that earlier versions would misread. 1: everything
 * up to the first version that writes it.
 */
export const dataDirFormat = 1;

/** Default data dir of `muster up`. */
export function defaultDataDir(): string {
  if (process.getuid?.() === 0) return "/var/lib/muster";
  return join(process.env["XDG_DATA_HOME"] ?? join(homedir(), ".local", "share"), "muster");
}

/**
 * Start time of the process with that pid, in clock ticks since boot; null if it does not exist. Guards against reused pids.
 */
function startTicks(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const [state, ...rest] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return state === "Z" ? null : (rest[18] ?? null);
  } catch {
    return null;
  }
}

/** Search permission on a folder, for its group and others. */
const passable = 0o011;

export function cannotWrite(path: string, error: unknown): UserError {
  const reason = (error as Error).message;
  const { code } = error as NodeJS.ErrnoException;
  if (code === "ENOSPC" || code === "EDQUOT")
    return new UserError(`the disk of the data dir ${path} is full (${reason}): free up space, and start it again`, {
      cause: error,
    });
  return new UserError(`cannot write the data dir ${path} (${reason}): choose another with --data-dir`, {
    cause: error,
  });
}

/**
 * Throws UserError when the folder is not writable, has a newer format, or another live process owns it. `letsTasksThrough`: other users may
 * traverse it to the directories of their tasks, without listing it; each of these has its own permissions.
 */
export function openDataDir(path: string, letsTasksThrough = false): DataDir {
  const owner = join(path, "owner");
  try {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    if (letsTasksThrough) chmodSync(path, statSync(path).mode | passable);
    const [pid, ticks] = readOr(owner, "").split(" ");
    if (pid !== undefined && pid !== "" && Number(pid) !== process.pid && startTicks(Number(pid)) === ticks) {
      throw new UserError(
        `the data dir ${path} is in use by process ${pid}: stop that process, or choose another with --data-dir`,
      );
    }
    const known = readOr(join(path, "format"), null);
    if (known !== null) refuseNewer(path, known);
    replaceFileSync(owner, `${process.pid} ${startTicks(process.pid)}`);
    const current = `${dataDirFormat} ${version}\n`;
    if (known !== current) replaceFileSync(join(path, "format"), current);
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

/** The number of the format, and the version of Muster that wrote it last. D4 */
function refuseNewer(path: string, text: string): void {
  const [, number, writer] = /^(\d{1,9}) (\S+)\n$/.exec(text) ?? [];
  if (number === undefined)
    throw new UserError(
      `${join(path, "format")} is damaged: remove this file if the data dir was last used by Muster ${version} or an earlier version, or restore it from a copy`,
    );
  if (Number(number) > dataDirFormat)
    throw new UserError(
      `the data dir ${path} has format ${number}, written by Muster ${writer}, but this Muster ${version} knows format ${dataDirFormat} at most: use that version or a newer one`,
    );
}

function readOr<Else>(path: string, otherwise: Else): string | Else {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return otherwise;
    throw error;
  }
}
