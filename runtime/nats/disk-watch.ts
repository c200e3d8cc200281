/**
 * Watches the disk under our own nats-server and keeps a reserve: a file beside the storage, as large as the space that must
 * stay free. If something else fills the disk completely, the file is removed, so that the server has space for leases and for
 * what it must write to start. The file is recreated when there is space for it.
 *
 * F3: while the reserve is released, its bytes count as used, so that nothing is appended into them.
 */
import { randomBytes } from "node:crypto";
import { open, rm, stat, statfs } from "node:fs/promises";
import type { Telemetry } from "../ports/index.ts";
import { spaceKind, spaceLimits, type DiskSpace, type SpaceLimits } from "./disk-space.ts";
import { textOf } from "./errors.ts";

/** At 100 MB/s, 128 MB take longer than this. */
const checkMs = 1_000;
/** Share of the bytes that must stay free: with less, something else has filled the disk. */
const releaseShare = 0.25;
/** Free space, in reserves, from which it is recreated: the remainder is above the limit for full. */
const remakeFactor = 3;
const chunkBytes = 1024 * 1024;

interface DiskWatchOptions {
  /** A folder on that disk. */
  readonly folder: string;
  /** Path of the reserve. */
  readonly reserveFile: string;
  readonly telemetry: Telemetry;
}

export class DiskWatch {
  readonly #options: DiskWatchOptions;
  readonly #limits: SpaceLimits;
  readonly sizeBytes: number;
  #space: DiskSpace;
  #timer: NodeJS.Timeout | undefined;
  #isStopped = false;

  private constructor(options: DiskWatchOptions, sizeBytes: number) {
    this.#options = options;
    this.sizeBytes = sizeBytes;
    this.#limits = spaceLimits(sizeBytes);
    this.#space = { kind: "ample", freeBytes: sizeBytes, writableBytes: sizeBytes, limits: this.#limits };
  }

  /** Resolves after the first check, with the space freed if possible. Throws the file system's errors. */
  static async start(options: DiskWatchOptions): Promise<DiskWatch> {
    const { blocks, bsize } = await statfs(options.folder);
    const watch = new DiskWatch(options, blocks * bsize);
    await watch.#check();
    return watch;
  }

  get space(): DiskSpace {
    return this.#space;
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  async #check(): Promise<void> {
    const { folder, telemetry } = this.#options;
    try {
      const free = await freeBytes(folder);
      const held = await this.#keepReserve(free);
      const writableBytes = await freeBytes(folder);
      const effective = writableBytes - (held ? 0 : this.#limits.fullBytes);
      const kind = spaceKind(effective, this.#limits, this.#space.kind);
      this.#space = { kind, freeBytes: Math.max(0, effective), writableBytes, limits: this.#limits };
      telemetry.metrics
        .gauge("muster_log_disk_free_bytes", "Free bytes on the disk under our own nats-server, without the reserve.")
        .set(this.#space.freeBytes);
    } catch (error) {
      telemetry.log.warn({ folder, reason: textOf(error) }, "cannot read the free space of the disk under the log");
    }
    if (this.#isStopped) return;
    this.#timer = setTimeout(() => void this.#check(), checkMs);
    this.#timer.unref();
  }

  /** Returns whether the reserve is on the disk afterwards. */
  async #keepReserve(free: number): Promise<boolean> {
    const { reserveFile, telemetry } = this.#options;
    const { fullBytes } = this.#limits;
    const held = await sizeOf(reserveFile);
    if (free < fullBytes * releaseShare && held > 0) {
      await rm(reserveFile, { force: true });
      telemetry.log.error({ free, released: held }, "the disk under the log is full: releasing its reserve");
      return false;
    }
    if (held >= fullBytes) return true;
    if (free + held < fullBytes * remakeFactor) return false;
    try {
      await fill(reserveFile, fullBytes);
      return true;
    } catch (error) {
      await rm(reserveFile, { force: true });
      telemetry.log.warn({ reason: textOf(error) }, "cannot create the reserve on the disk under the log");
      return false;
    }
  }
}

async function freeBytes(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder);
  return bavail * bsize;
}

/** 0 if the file does not exist. */
async function sizeOf(file: string): Promise<number> {
  try {
    return (await stat(file)).size;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return 0;
    throw error;
  }
}

/** With random bytes, which no file system compresses. */
async function fill(file: string, bytes: number): Promise<void> {
  const handle = await open(file, "w", 0o600);
  try {
    const chunk = randomBytes(chunkBytes);
    for (let left = bytes; left > 0; left -= chunkBytes)
      await handle.writeFile(chunk.subarray(0, Math.min(left, chunkBytes)));
    await handle.sync();
  } finally {
    await handle.close();
  }
}
