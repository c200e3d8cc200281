/**
 * Replays what the replica's memory no longer has: the state at some earlier version is rebuilt from a snapshot, and each
 * record of the log from there on is applied to it and told, as a live watcher would have been told.
 *
 * One pass at a time, for all who wait: its copy of the state may be as large as the replica itself.
 *
 * P1: a reader is told each commit after its position, in order, and leaves as soon as memory has the rest.
 * P2: a pass never runs ahead of the replica, and waits for its slowest reader; who is stalled is cut off by its chart.
 */
import type { Blobs, Clock, Log, Telemetry } from "../runtime/ports.ts";
import { LogBreak, Replica } from "../runtime/store/replica.ts";
import { SnapshotError } from "../runtime/store/snapshot.ts";
import { listSnapshots, snapshotName } from "../runtime/store/snapshots.ts";
import { sleep } from "../runtime/store/wait.ts";
import { Fanout, type Listener } from "./watch-fanout.ts";
import type { RecentCommits } from "./watch-recent.ts";

/** Between two looks at a reader that has too much before it, in milliseconds. */
const paceMs = 20;
/** How long the log may take to tell its bounds, in milliseconds; and between two tries. */
const boundsTimeoutMs = 2_000;
const retryMs = 250;
/** Tries to find and load a snapshot before those that wait for it are turned away. */
const attemptsMax = 8;

export interface ReplayReader extends Listener {
  /** The last version that it knows; moved on by the pass. */
  position: number;
  /** It has enough before it for now. */
  isFull(): boolean;
  onBegun(): void;
  /** The pass waits for it, or no longer does. */
  onHeld(isHeld: boolean): void;
  /** Memory has the rest. */
  onReached(): void;
  onCompacted(oldest: number): void;
  onUnreadable(): void;
}

export interface ReplayParts {
  readonly log: Log;
  readonly blobs: Blobs;
  readonly clock: Clock;
  readonly telemetry: Telemetry;
  readonly recent: RecentCommits;
}

type Base =
  | { readonly kind: "base"; readonly replica: Replica }
  /** The oldest version from which can be resumed. */
  | { readonly kind: "compacted"; readonly oldest: number }
  | { readonly kind: "unreadable" };

export class Replays {
  readonly #parts: ReplayParts;
  /** Who waits for the next pass, or for this one to come to its position. */
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
    // Those that come together, as after the crash of a manager, are served together.
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
          // The log was purged meanwhile: the next pass says who came too late.
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

  /** Lets those in that are at this version, and those out whom memory serves from here. Returns how many stay or wait. */
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

  /** Reads until nobody is left, a reader has too much before it, or the log cannot be gone on with. */
  #read(replica: Replica): Promise<"done" | "held" | "gap" | "broken"> {
    const { log, clock } = this.#parts;
    return new Promise((resolve) => {
      let isOver = false;
      const end = (outcome: "done" | "held" | "gap" | "broken"): void => {
        if (isOver) return;
        isOver = true;
        clock.clearTimeout(looking);
        // `read` may hand over before it has returned.
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
      // Everybody may go while the log is silent.
      const look = (): void => {
        if (this.#isStopped || this.#admit(replica.version) === 0) end("done");
        else looking = clock.setTimeout(look, retryMs);
      };
      let looking = clock.setTimeout(look, retryMs);
    });
  }

  /** The state at the version of whoever is furthest behind, or at an earlier one. Null when nobody waits any more. */
  async #rebuild(): Promise<Base | null> {
    const { log, blobs, clock, telemetry } = this.#parts;
    for (let attempt = 0; attempt < attemptsMax && !this.#isStopped; attempt += 1) {
      if (attempt > 0) await sleep(clock, retryMs);
      const bounds = await log.bounds(boundsTimeoutMs);
      if (bounds === null) continue;
      let sequences: readonly number[];
      try {
        sequences = await listSnapshots(blobs);
      } catch {
        continue;
      }
      if (this.#waiting.size === 0) return null;
      const position = Math.min(...[...this.#waiting].map((reader) => reader.position));
      // A snapshot must be continued by the log. Without any, the log itself begins with nothing.
      const usable = sequences.filter((sequence) => sequence >= bounds.first - 1 && sequence <= bounds.last);
      if (bounds.first <= 1) usable.push(0);
      const sequence = usable.find((each) => each <= position);
      if (sequence === undefined) {
        const oldest = usable.at(-1);
        return { kind: "compacted", oldest: oldest ?? Number.POSITIVE_INFINITY };
      }
      const replica = new Replica();
      if (sequence === 0) return { kind: "base", replica };
      try {
        const bytes = await blobs.get(snapshotName(sequence));
        // A newer one has taken its place meanwhile.
        if (bytes === null) continue;
        replica.load(bytes);
        return { kind: "base", replica };
      } catch (error) {
        if (!(error instanceof SnapshotError)) continue;
        telemetry.log.error({ sequence, error: error.message }, "snapshot is not usable for a replay");
      }
    }
    return { kind: "unreadable" };
  }
}
