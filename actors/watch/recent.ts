/**
 * The newest commits of a replica, kept in memory: a client that reconnects soon resumes from them alone.
 *
 * B1: the commits have no gaps: all those after `base`, up to the replica's version.
 */
import type { Commit, ObjectChange } from "../../runtime/store/store.ts";

/** About the changes of one busy minute: 50,000 changes of tasks. */
export const recentBytesMax = 32 * 1024 * 1024;
/** Maximum number of commits, since the lists that hold them cost memory too. */
const recentCommitsMax = 50_000;

/**
 * Bytes that a change keeps alive besides the current state: measured for tasks, estimated generously for the rest, with
 * payloads in full.
 */
function weightOf(change: ObjectChange): number {
  switch (change.table) {
    case "task":
      return 600;
    case "secret":
    case "config":
      return 2_000 + 2 * (change.object.spec?.data.length ?? 0);
    case "resource":
      return 2_000 + 2 * (change.object.payload?.value.length ?? 0);
    case "node":
    case "service":
    case "network":
    case "cluster":
    case "extension":
    case "volume":
    case "session":
    case "manager":
    case "rollout":
    case "user":
    case "format":
      return 4_000;
  }
}

/** The parts of a commit that watchers receive. */
export type RecentCommit = Pick<Commit, "version" | "changes">;

interface Kept extends RecentCommit {
  readonly bytes: number;
}

export class RecentCommits {
  /** Valid from `#from` on; the rest is trimmed now and then, since shifting a long list moves all of it. */
  #kept: Kept[] = [];
  #from = 0;
  #base: number;
  #bytes = 0;
  readonly #bytesMax: number;

  constructor(version: number, bytesMax = recentBytesMax) {
    this.#base = version;
    this.#bytesMax = bytesMax;
  }

  /** The oldest version to resume from. */
  get base(): number {
    return this.#base;
  }

  /** Version of the newest commit. */
  get version(): number {
    return this.#kept.at(-1)?.version ?? this.#base;
  }

  get size(): number {
    return this.#kept.length - this.#from;
  }

  /** Appends the next commit. */
  push({ version, changes }: RecentCommit): void {
    let bytes = 200;
    for (const change of changes) bytes += weightOf(change);
    this.#kept.push({ version, changes, bytes });
    this.#bytes += bytes;
    while (this.size > 0 && (this.#bytes > this.#bytesMax || this.size > recentCommitsMax)) this.#drop();
    if (this.#from > 1_000 && this.#from > this.#kept.length / 2) {
      this.#kept = this.#kept.slice(this.#from);
      this.#from = 0;
    }
  }

  /** Forgets everything: the replica jumped to `version`. */
  restart(version: number): void {
    this.#kept = [];
    this.#from = 0;
    this.#bytes = 0;
    this.#base = version;
  }

  covers(version: number): boolean {
    return version >= this.#base && version <= this.version;
  }

  /** The commit after a covered version; undefined when that is the newest. */
  next(version: number): RecentCommit | undefined {
    return this.#kept[this.#from + (version - this.#base)];
  }

  #drop(): void {
    const oldest = this.#kept[this.#from] as Kept;
    // Releases the commit's objects.
    this.#kept[this.#from] = { version: oldest.version, changes: [], bytes: 0 };
    this.#from += 1;
    this.#bytes -= oldest.bytes;
    this.#base = oldest.version;
  }
}
