/**
 * Watches the disk under our own nats-server, and holds some of it in reserve: a file beside the storage, as large as what
 * has to stay free. Somebody else may fill the disk to the last byte; then the file is given up, and the server has room
 * for leases and for what it must write to start. It is made again when there is room for it.
 *
 * F3: while the reserve is given up its bytes count as used, so that nothing is appended into them.
 */
import { randomBytes } from "node:crypto";
import { open, rm, stat, statfs } from "node:fs/promises";
import type { Subscription, Telemetry } from "../ports.ts";
import { roomKind, roomLimits, type DiskRoom, type RoomLimits } from "./disk-room.ts";
import { textOf } from "./errors.ts";

/** A disk at 100 MB/s takes 128 MB in this time. */
const lookMs = 1_000;
/** Of the bytes that have to stay free: with less, somebody else has filled the disk. */
const releaseShare = 0.25;
/** Free space, in reserves, from which on it is made again: what is left is above what counts as full. */
const remakeFactor = 3;
const chunkBytes = 1024 * 1024;

export interface DiskWatchOptions {
  /** A folder on that disk. */
  readonly folder: string;
  /** Where the reserve is kept. */
  readonly reserveFile: string;
  readonly telemetry: Telemetry;
}

export class DiskWatch {
  readonly #options: DiskWatchOptions;
  readonly #listeners = new Set<() => void>();
  readonly #limits: RoomLimits;
  readonly sizeBytes: number;
  #room: DiskRoom;
  #timer: NodeJS.Timeout | undefined;
  #isStopped = false;

  private constructor(options: DiskWatchOptions, sizeBytes: number) {
    this.#options = options;
    this.sizeBytes = sizeBytes;
    this.#limits = roomLimits(sizeBytes);
    this.#room = { kind: "ample", freeBytes: sizeBytes, writableBytes: sizeBytes, limits: this.#limits };
  }

  /** Has looked once, and made what room it can, when it resolves. Throws what the file system does. */
  static async start(options: DiskWatchOptions): Promise<DiskWatch> {
    const { blocks, bsize } = await statfs(options.folder);
    const watch = new DiskWatch(options, blocks * bsize);
    await watch.#look();
    return watch;
  }

  get room(): DiskRoom {
    return this.#room;
  }

  /** Calls after each look. */
  onLook(listener: () => void): Subscription {
    this.#listeners.add(listener);
    return { unsubscribe: () => void this.#listeners.delete(listener) };
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  async #look(): Promise<void> {
    const { folder, telemetry } = this.#options;
    try {
      const free = await freeBytes(folder);
      const held = await this.#keepReserve(free);
      const writableBytes = await freeBytes(folder);
      const effective = writableBytes - (held ? 0 : this.#limits.fullBytes);
      const kind = roomKind(effective, this.#limits, this.#room.kind);
      this.#room = { kind, freeBytes: Math.max(0, effective), writableBytes, limits: this.#limits };
      telemetry.metrics
        .gauge("muster_log_disk_free_bytes", "Free on the disk under our own nats-server, without the reserve.")
        .set(this.#room.freeBytes);
    } catch (error) {
      telemetry.log.warn({ folder, reason: textOf(error) }, "the disk under the log cannot be looked at");
    }
    for (const listener of this.#listeners) listener();
    if (this.#isStopped) return;
    this.#timer = setTimeout(() => void this.#look(), lookMs);
    this.#timer.unref();
  }

  /** Whether the reserve is on the disk afterwards. */
  async #keepReserve(free: number): Promise<boolean> {
    const { reserveFile, telemetry } = this.#options;
    const { fullBytes } = this.#limits;
    const held = await sizeOf(reserveFile);
    if (free < fullBytes * releaseShare && held > 0) {
      await rm(reserveFile, { force: true });
      telemetry.log.error({ free, released: held }, "the disk under the log is full: its reserve is given up");
      return false;
    }
    if (held >= fullBytes) return true;
    if (free + held < fullBytes * remakeFactor) return false;
    try {
      await fill(reserveFile, fullBytes);
      return true;
    } catch (error) {
      await rm(reserveFile, { force: true });
      telemetry.log.warn({ reason: textOf(error) }, "no reserve could be made on the disk under the log");
      return false;
    }
  }
}

async function freeBytes(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder);
  return bavail * bsize;
}

/** 0 when there is none. */
async function sizeOf(file: string): Promise<number> {
  try {
    return (await stat(file)).size;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return 0;
    throw error;
  }
}

/** With bytes that no file system makes smaller. */
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
