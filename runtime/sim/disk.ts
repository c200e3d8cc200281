/**
 * What one process has on disk: it outlives the process, but what was written since its last `sync` may be lost when
 * the machine (and not only the process) stops. Files are written whole.
 */

/** The disk is full, or fails: nothing of the write has happened. */
export class DiskError extends Error {
  override readonly name = "DiskError";
}

/** What is on a disk at one moment. */
export interface DiskCopy {
  readonly files: ReadonlyMap<string, Uint8Array>;
}

export class SimDisk {
  #synced = new Map<string, Uint8Array>();
  #current = new Map<string, Uint8Array>();
  /** While true nothing can be written; what is there can be read and removed. */
  isFull = false;
  readonly #mark: (name: string) => void;

  /** `mark` is called with the name of each rare thing that happens to the disk. */
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

  /** What the file is now, or that it is no more, survives whatever happens. */
  sync(name: string): void {
    const data = this.#current.get(name);
    if (data === undefined) this.#synced.delete(name);
    else this.#synced.set(name, data);
  }

  /** What is on the platters now. */
  copy(): DiskCopy {
    return { files: new Map(this.#synced) };
  }

  /** The disk is as it was when it was copied, as after a backup was brought back. */
  restore({ files }: DiskCopy): void {
    this.#synced = new Map(files);
    this.#current = new Map(files);
  }

  /** The power fails: what was not synced is gone. */
  loseUnsynced(): void {
    const names = new Set([...this.#synced.keys(), ...this.#current.keys()]);
    for (const name of names) if (this.#synced.get(name) !== this.#current.get(name)) this.#mark("disk.unsynced.lost");
    this.#current = new Map(this.#synced);
  }
}
