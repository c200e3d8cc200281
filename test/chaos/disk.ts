/**
 * The disk of one machine: an ext4 file system of fixed size in a file. It can be filled, lost, restored to an earlier state,
 * or lose power.
 *
 * A power cut stops ext4 at once, without a journal commit: synced data stays, and so does what the kernel had written back by
 * itself. Data that is only in the page cache is lost, as are names that no journal commit has reached. (Copying the image of a
 * mounted file system does not capture such a moment: the kernel writes during the copy, and nats-server met "bad message" on
 * one.) Disks that lose their own cache or reorder writes across a flush are not simulated.
 */
import { execFileSync } from "node:child_process";
import { closeSync, mkdirSync, openSync, readFileSync, rmSync, statfsSync, writeSync } from "node:fs";
import { join } from "node:path";
import { until } from "../fixtures/until.ts";

/** Seconds between ext4's periodic journal commits: a power cut loses up to this much. */
const commitSeconds = 60;
const filler = "filler";
/** EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH (linux/fs/ext4/ext4.h): how xfstests cut the power. */
const shutdownScript =
  'open(my $d, "<", $ARGV[0]) or die $!; my $how = pack("L", 2); ioctl($d, 0x8004587D, $how) or die $!';

function run(file: string, ...args: readonly string[]): void {
  execFileSync(file, args, { stdio: ["ignore", "ignore", "pipe"] });
}

export class Disk {
  /** The mount point. */
  readonly path: string;
  readonly #folder: string;
  readonly #bytes: number;
  #generation = 0;

  /** `folder` holds the images and is on a file system in memory. */
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

  get #kept(): string {
    return join(this.#folder, "kept");
  }

  #format(): void {
    run("truncate", "-s", String(this.#bytes), this.#image);
    run("mkfs.ext4", "-q", "-m", "0", "-J", "size=4", this.#image);
  }

  #mount(): void {
    run("mount", "-o", `loop,noatime,commit=${commitSeconds}`, this.#image, this.path);
  }

  /**
   * Requires that no process has a file open on it. The kernel may release a killed process's files a moment after its exit.
   */
  async #unmount(): Promise<void> {
    await until(`processes that use ${this.path} to exit`, () => {
      run("umount", this.path);
      return true;
    });
  }

  #copy(from: string, to: string): void {
    run("cp", "--sparse=always", from, to);
  }

  /** Fills all free space. */
  fill(): void {
    const file = openSync(join(this.path, filler), "a");
    try {
      // In ever smaller pieces, until no block is free.
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

  /**
   * Continues with a new image, which `make` writes. A mount namespace that has not ended yet, such as a task's, may hold the old
   * file system: mounting the same file again would find that one, whatever the file contains by then.
   */
  async #replace(make: (image: string, old: string) => void): Promise<void> {
    await this.#unmount();
    const old = this.#image;
    this.#generation += 1;
    make(this.#image, old);
    rmSync(old);
    this.#mount();
  }

  /** Empties it. Requires that no process has a file open on it, as do `putBack` and `powerOn`. */
  wipe(): Promise<void> {
    return this.#replace(() => this.#format());
  }

  /** Saves a synced copy of its current state. The file system is frozen meanwhile: unmounting ends it only if nobody else holds it. */
  keep(): void {
    run("fsfreeze", "--freeze", this.path);
    try {
      this.#copy(this.#image, this.#kept);
    } finally {
      run("fsfreeze", "--unfreeze", this.path);
    }
  }

  /** Restores what `keep` saved. */
  putBack(): Promise<void> {
    return this.#replace((image) => this.#copy(this.#kept, image));
  }

  /** The moment of the power cut: nothing more is written, and every access fails until `powerOn`. */
  cutPower(): void {
    run("perl", "-e", shutdownScript, this.path);
  }

  /** Switches the machine on again: the journal is replayed. */
  powerOn(): Promise<void> {
    return this.#replace((image, dead) => this.#copy(dead, image));
  }

  /** Whether it is mounted in this process's namespace. */
  isMounted(): boolean {
    return readFileSync("/proc/self/mounts", "utf8").includes(` ${this.path} `);
  }
}
