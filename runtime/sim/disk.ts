/**
 * One process's disk: it survives the process, but a failure of the machine (not only of the process) may lose what was written
 * since the last `sync`. Files are written whole.
 */

/** The disk is full or has failed; nothing was written. */
class DiskError extends Error {
  override readonly name = "DiskError";
}

/** The contents of a disk at one moment. */
export interface DiskCopy {
  readonly files: ReadonlyMap<string, Uint8Array>;
}

export class SimDisk {
  #synced = new Map<string, Uint8Array>();
  #current = new Map<string, Uint8Array>();
  /** While true, writes fail; files can be read and removed. */
  isFull = false;
  readonly #mark: (name: string) => void;

  /** Calls `mark` with the name of each rare event of the disk. */
  constructor(mark: (name: string) => void) {
    this.#mark = mark;
  }

  /** Throws DiskError while the disk is full. */
  write(name: string, data: Uint8Array): void {
    if (this.isFull) {
      this.#mark("disk.write.refused");
      throw new DiskError(`no space left on device: ${name}`);
    }
    this.#current.set(name, data.slice());
  }

  read(name: string): Uint8Array | null {
    return this.#current.get(name)?.slice() ?? null;
  }

  remove(name: string): void {
    this.#current.delete(name);
  }

  names(): readonly string[] {
    return [...this.#current.keys()].sort();
  }

  /** Makes the file's current contents, or its removal, durable. */
  sync(name: string): void {
    const data = this.#current.get(name);
    if (data === undefined) this.#synced.delete(name);
    else this.#synced.set(name, data);
  }

  /** The durable contents. */
  copy(): DiskCopy {
    return { files: new Map(this.#synced) };
  }

  /** Restores the disk to a copy, as from a backup. */
  restore({ files }: DiskCopy): void {
    this.#synced = new Map(files);
    this.#current = new Map(files);
  }

  /** A power failure: unsynced data is lost. */
  loseUnsynced(): void {
    const names = new Set([...this.#synced.keys(), ...this.#current.keys()]);
    for (const name of names) if (this.#synced.get(name) !== this.#current.get(name)) this.#mark("disk.unsynced.lost");
    this.#current = new Map(this.#synced);
  }
}
