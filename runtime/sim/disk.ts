/**
 * What one process has on disk: it outlives the process, but what was written since its last `sync` may be lost when
 * the machine (and not only the process) stops. Files are written whole.
 */
export class SimDisk {
  readonly #synced = new Map<string, Uint8Array>();
  #current = new Map<string, Uint8Array>();

  write(name: string, data: Uint8Array): void {
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

  /** The power fails: what was not synced is gone. */
  loseUnsynced(): void {
    this.#current = new Map(this.#synced);
  }
}
