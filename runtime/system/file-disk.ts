/**
 * Small records as files of one directory, readable by this user only.
 *
 * D1: a record is whole or absent after any crash: it is written to a temporary file, flushed, and renamed into place.
 * D2: once `save` or `remove` has resolved, the change survives a crash of the machine.
 * D3: changes of one name happen in the order of the calls.
 */
import { mkdir, readFile, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { assert } from "../../lib/assert.ts";
import { putInPlace, syncFolder } from "./whole-file.ts";

const namePattern = /^[A-Za-z0-9_-][A-Za-z0-9._-]*$/;
/** Temporary files, which a crash may leave behind: never listed, and removed when the directory is opened. */
const unfinished = ".tmp-";

export class FileDisk {
  readonly #directory: string;
  readonly #turns = new Map<string, Promise<void>>();
  /** One flush of the directory covers every rename before its start. */
  #flush: { readonly promise: Promise<void>; hasBegun: boolean } | null = null;

  private constructor(directory: string) {
    this.#directory = directory;
  }

  /** Creates the directory (mode 0700) if it is absent. Rejects as `mkdir` does. */
  static async open(directory: string): Promise<FileDisk> {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    for (const name of await readdir(directory))
      if (name.startsWith(unfinished)) await rm(join(directory, name), { force: true });
    return new FileDisk(directory);
  }

  async load(name: string): Promise<Uint8Array | null> {
    await this.#turns.get(name);
    try {
      return await readFile(this.#path(name));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
      throw error;
    }
  }

  save(name: string, data: Uint8Array): Promise<void> {
    const path = this.#path(name);
    return this.#inTurn(name, async () => {
      await putInPlace(path, data, { beside: join(this.#directory, unfinished + name) });
      await this.#flushDirectory();
    });
  }

  remove(name: string): Promise<void> {
    const path = this.#path(name);
    return this.#inTurn(name, async () => {
      await rm(path, { force: true });
      await this.#flushDirectory();
    });
  }

  async list(prefix: string): Promise<readonly string[]> {
    const names = await readdir(this.#directory);
    return names.filter((name) => name.startsWith(prefix) && !name.startsWith(unfinished)).sort();
  }

  #path(name: string): string {
    assert(namePattern.test(name), `D1: '${name}' is a valid file name`);
    return join(this.#directory, name);
  }

  /** D3 */
  #inTurn(name: string, act: () => Promise<void>): Promise<void> {
    const turn = (this.#turns.get(name) ?? Promise.resolve()).then(act);
    const settled = turn.catch(() => {});
    this.#turns.set(name, settled);
    void settled.then(() => {
      if (this.#turns.get(name) === settled) this.#turns.delete(name);
    });
    return turn;
  }

  /** D2 */
  #flushDirectory(): Promise<void> {
    if (this.#flush !== null && !this.#flush.hasBegun) return this.#flush.promise;
    const before = this.#flush?.promise.catch(() => {}) ?? Promise.resolve();
    const flush = {
      hasBegun: false,
      promise: before.then(async () => {
        flush.hasBegun = true;
        try {
          await syncFolder(this.#directory);
        } finally {
          if (this.#flush === flush) this.#flush = null;
        }
      }),
    };
    this.#flush = flush;
    return flush.promise;
  }
}
