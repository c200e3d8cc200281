/**
 * The disk of one machine: an ext4 file system of a fixed size in a file, so that it can be full, lost, put back to an
 * earlier state, or lose its power.
 *
 * A power cut stops ext4 at once, without a journal commit: synced data stays, and so does what the kernel had written back by
 * itself. What is still in the page cache is lost, as are names that no journal commit has reached. (A copy of the image of a
 * mounted file system is no such moment: the kernel goes on writing while it is made, and nats-server met "bad message" on one.)
 * A disk that loses its own cache, or reorders writes across a flush, is not simulated.
 */
import { execFileSync } from "node:child_process";
import { closeSync, mkdirSync, openSync, readFileSync, rmSync, statfsSync, writeSync } from "node:fs";
import { join } from "node:path";
import { until } from "../fixtures/until.ts";

/** Seconds between two commits of ext4's journal that nobody asks for: a power cut loses up to as much. */
const commitSeconds = 60;
const filler = "filler";
/** EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH (linux/fs/ext4/ext4.h), as xfstests cut the power. */
const shutdownScript =
  'open(my $d, "<", $ARGV[0]) or die $!; my $how = pack("L", 2); ioctl($d, 0x8004587D, $how) or die $!';

function run(file: string, ...args: readonly string[]): void {
  execFileSync(file, args, { stdio: ["ignore", "ignore", "pipe"] });
}

export class Disk {
  /** Where it is mounted. */
  readonly path: string;
  readonly #folder: string;
  readonly #bytes: number;
  #generation = 0;

  /** `folder` keeps the images, and is on a file system in memory. */
  constructor(folder: string, name: string, bytes: number) {
    this.#folder = join(folder, `${name}.images`);
    this.path = join(folder, name);
    this.#bytes = bytes;
    mkdirSync(this.#folder, { recursive: true });
    mkdirSync(this.path);
    this.#format();
    this.#mount();
  }

  get #image(): string {
    return join(this.#folder, String(this.#generation));
  }

  #format(): void {
    run("truncate", "-s", String(this.#bytes), this.#image);
    run("mkfs.ext4", "-q", "-m", "0", "-J", "size=4", this.#image);
  }

  #mount(): void {
    run("mount", "-o", `loop,noatime,commit=${commitSeconds}`, this.#image, this.path);
  }

  /** Nobody may have a file open on it. What a killed process held, the kernel may give up a moment after its end. */
  async #unmount(): Promise<void> {
    await until(`the end of what uses ${this.path}`, () => {
      run("umount", this.path);
      return true;
    });
  }

  #copy(from: string, to: string): void {
    run("cp", "--sparse=always", from, to);
  }

  /** Takes all space that is left. */
  fill(): void {
    const file = openSync(join(this.path, filler), "a");
    try {
      // Smaller and smaller pieces, until not one block is left.
      for (let piece = 1 << 20; piece >= 512; piece >>= 1) {
        const zeros = Buffer.alloc(piece);
        try {
          for (;;) if (writeSync(file, zeros) < piece) break;
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
        }
      }
    } finally {
      closeSync(file);
    }
  }

  free(): void {
    rmSync(join(this.path, filler), { force: true });
  }

  bytesFree(): number {
    const { bavail, bsize } = statfsSync(this.path);
    return bavail * bsize;
  }

  /** Empties it. Nobody may have a file open on it, as for all that follow. */
  async wipe(): Promise<void> {
    await this.#unmount();
    rmSync(this.#image);
    this.#format();
    this.#mount();
  }

  /** Keeps a copy of its present state, synced. */
  async keep(): Promise<void> {
    await this.#unmount();
    this.#copy(this.#image, join(this.#folder, "kept"));
    this.#mount();
  }

  async putBack(): Promise<void> {
    await this.#unmount();
    this.#copy(join(this.#folder, "kept"), this.#image);
    this.#mount();
  }

  /** The moment of the power cut: nothing more is written, and every access fails until `powerOn`. */
  cutPower(): void {
    run("perl", "-e", shutdownScript, this.path);
  }

  /** The machine is on again: the journal is replayed. */
  async powerOn(): Promise<void> {
    await this.#unmount();
    // A mount namespace that has not ended yet would hold the dead file system, which mounting the same file would find again.
    const dead = this.#image;
    this.#generation += 1;
    this.#copy(dead, this.#image);
    rmSync(dead);
    this.#mount();
  }

  /** Whether it is mounted where a process of this namespace sees it. */
  isMounted(): boolean {
    return readFileSync("/proc/self/mounts", "utf8").includes(` ${this.path} `);
  }
}
