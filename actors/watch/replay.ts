/**
 * Replays commits that are no longer in memory: rebuilds the state at an earlier version from a snapshot, applies each later
 * record of the log to it, and sends it as a live watcher would have received it.
 *
 * One pass at a time serves all waiting readers, since its copy of the state may be as large as the replica.
 *
 * P1: a reader gets each commit after its position, in order, and leaves as soon as memory has the rest.
 * P2: a pass never runs ahead of the replica, and waits for its slowest reader; a stalled reader is cut off by its chart.
 */
import { LogBreak } from "../../runtime/store/log-break.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import { sleep } from "../../runtime/store/wait.ts";
import { loadBase, type Base, type PastParts } from "../history/base.ts";
import { Fanout, type Listener } from "./fanout.ts";
import type { RecentCommits } from "./recent.ts";

/** Interval of checking a reader whose buffer is full, in milliseconds. */
const paceMs = 20;
/** Interval of checking whether there are still readers, in milliseconds. */
const retryMs = 250;

export interface ReplayReader extends Listener {
  /** The last version that it has; advanced by the pass. */
  position: number;
  /** Whether its buffer is full. */
  isFull(): boolean;
  onBegun(): void;
  /** The pass starts or stops waiting for this reader. */
  onHeld(isHeld: boolean): void;
  /** The rest of the commits is in memory. */
  onReached(): void;
  onCompacted(oldest: number): void;
  onUnreadable(): void;
}

interface ReplayParts extends PastParts {
  readonly recent: RecentCommits;
}

export class Replays {
  readonly #parts: ReplayParts;
  /** Readers that wait for the next pass, or for this one to reach their position. */
  readonly #waiting = new Set<ReplayReader>();
  readonly #reading = new Set<ReplayReader>();
  readonly #fanout = new Fanout();
  #isRunning = false;
  #isStopped = false;

  constructor(parts: ReplayParts) {
    this.#parts = parts;
  }

  join(reader: ReplayReader): void {
    this.#waiting.add(reader);
    if (this.#isRunning) return;
    this.#isRunning = true;
    void this.#run();
  }

  leave(reader: ReplayReader): void {
    this.#waiting.delete(reader);
    if (this.#reading.delete(reader)) this.#fanout.remove(reader);
  }

  stop(): void {
    this.#isStopped = true;
    this.#waiting.clear();
    for (const reader of this.#reading) this.leave(reader);
  }

  async #run(): Promise<void> {
    // Readers that arrive together, such as after a crash of a manager, are served together.
    await sleep(this.#parts.clock, 0);
    while (!this.#isStopped && this.#waiting.size > 0) {
      try {
        await this.#pass();
      } catch (error) {
        this.#parts.telemetry.log.warn({ error: String(error) }, "a replay for watchers failed");
        for (const reader of [...this.#waiting, ...this.#reading]) this.#turnAway(reader, (one) => one.onUnreadable());
      }
    }
    this.#isRunning = false;
  }

  async #pass(): Promise<void> {
    const base = await this.#rebuild();
    if (this.#isStopped || base === null) return;
    if (base.kind === "unreadable") {
      for (const reader of this.#waiting) this.#turnAway(reader, (one) => one.onUnreadable());
      return;
    }
    if (base.kind === "compacted") {
      for (const reader of this.#waiting) {
        if (reader.position < base.oldest) this.#turnAway(reader, (one) => one.onCompacted(base.oldest));
      }
      return;
    }
    const { replica } = base;
    const unwatch = replica.watch((commit) => {
      this.#fanout.tell(commit);
      for (const reader of this.#reading) reader.position = commit.version;
    });
    try {
      while (!this.#isStopped && this.#admit(replica.version) > 0) {
        const outcome = await this.#read(replica);
        if (outcome === "broken") {
          for (const reader of [...this.#waiting, ...this.#reading])
            this.#turnAway(reader, (one) => one.onUnreadable());
          return;
        }
        if (outcome === "gap") {
          // The log was purged meanwhile: the next pass finds the readers that are too late.
          for (const reader of this.#reading) {
            this.leave(reader);
            this.#waiting.add(reader);
          }
          return;
        }
        await this.#makeRoom();
      }
    } finally {
      unwatch.unsubscribe();
    }
  }

  /** Admits readers at this version, and releases those that memory can serve from here. Returns how many stay or wait. */
  #admit(version: number): number {
    const { recent } = this.#parts;
    for (const reader of this.#waiting) {
      if (recent.covers(reader.position)) this.#turnAway(reader, (one) => one.onReached());
      else if (reader.position === version) {
        this.#waiting.delete(reader);
        this.#reading.add(reader);
        this.#fanout.add(reader);
        reader.onBegun();
      }
    }
    for (const reader of this.#reading) {
      if (recent.covers(reader.position)) this.#turnAway(reader, (one) => one.onReached());
    }
    let ahead = 0;
    for (const { position } of this.#waiting) if (position > version) ahead += 1;
    return this.#reading.size + ahead;
  }

  #turnAway(reader: ReplayReader, tell: (reader: ReplayReader) => void): void {
    this.leave(reader);
    tell(reader);
  }

  #isHeld(): boolean {
    for (const reader of this.#reading) if (reader.isFull()) return true;
    return false;
  }

  /** P2 */
  async #makeRoom(): Promise<void> {
    const held = new Set<ReplayReader>();
    for (;;) {
      for (const reader of this.#reading) {
        const isHeld = reader.isFull();
        if (isHeld === held.has(reader)) continue;
        if (isHeld) held.add(reader);
        else held.delete(reader);
        reader.onHeld(isHeld);
      }
      if (this.#isStopped || !this.#isHeld()) return;
      await sleep(this.#parts.clock, paceMs);
    }
  }

  /** Reads until no reader is left, a reader's buffer is full, or the log cannot be read on. */
  #read(replica: Replica): Promise<"done" | "held" | "gap" | "broken"> {
    const { log, clock } = this.#parts;
    return new Promise((resolve) => {
      let isOver = false;
      const end = (outcome: "done" | "held" | "gap" | "broken"): void => {
        if (isOver) return;
        isOver = true;
        clock.clearTimeout(looking);
        // `read` may deliver before it has returned.
        clock.soon(() => reading.unsubscribe());
        resolve(outcome);
      };
      const reading = log.read(replica.version + 1, {
        onRecord: (sequence, data) => {
          if (isOver || sequence !== replica.version + 1) return;
          try {
            replica.apply(sequence, data);
          } catch (error) {
            if (!(error instanceof LogBreak)) throw error;
            end("broken");
            return;
          }
          if (this.#admit(replica.version) === 0) end("done");
          else if (this.#isHeld()) end("held");
        },
        onCaughtUp: () => {},
        onGap: () => end("gap"),
      });
      // All readers may leave while the log is silent.
      const look = (): void => {
        if (this.#isStopped || this.#admit(replica.version) === 0) end("done");
        else looking = clock.setTimeout(look, retryMs);
      };
      let looking = clock.setTimeout(look, retryMs);
    });
  }

  /** The state at the version of the reader furthest behind, or an earlier one. Null when no reader waits any more. */
  #rebuild(): Promise<Base | null> {
    return loadBase(this.#parts, () => {
      if (this.#isStopped || this.#waiting.size === 0) return null;
      return Math.min(...[...this.#waiting].map((reader) => reader.position));
    });
  }
}
