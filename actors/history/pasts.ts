/**
 * Earlier states of the cluster, rebuilt for whoever wants to read them, and kept a little while for the next read.
 *
 * P1: a past that was handed out is read at once: it may be taken further with the next turn.
 * P2: at most `pastsMax` states are in memory beside the present one, together with at most `objectsMax` objects unless
 *     one alone has more.
 */
import { RpcError, Status, type CallSignal } from "../../runtime/rpc.ts";
import type { TimerHandle } from "../../runtime/ports.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import { tableNames } from "../../runtime/store/tables.ts";
import { loadBase, type PastParts } from "./base.ts";
import { notKept, unreadable } from "./moment.ts";
import { replayTo } from "./replay.ts";
import type { Turns } from "./turns.ts";

/** Two are enough to compare a before with an after. */
const pastsMax = 2;
/** Some 200 MB. */
const objectsMax = 200_000;
/** After this long without a read a state is forgotten, in milliseconds: a command's reads come within one second. */
const keptMs = 20_000;
/** Taking a kept state further is preferred to loading a snapshot while it is at most this many records. */
const furtherMax = 50_000;

interface Kept {
  replica: Replica;
  usedAt: number;
}

export class Pasts {
  readonly #parts: PastParts;
  readonly #turns: Turns;
  #kept: Kept[] = [];
  #timer: TimerHandle | null = null;
  #isStopped = false;

  constructor(parts: PastParts, turns: Turns) {
    this.#parts = parts;
    this.#turns = turns;
  }

  /** States in memory. */
  get size(): number {
    return this.#kept.length;
  }

  /** The state at that version (P1). Rejects with OUT_OF_RANGE when it cannot be rebuilt, and as Turns.take does. */
  async at(version: number, signal?: CallSignal): Promise<Replica> {
    return this.#find(version) ?? (await this.#turns.take(() => this.#rebuild(version), signal));
  }

  stop(): void {
    this.#isStopped = true;
    this.#kept = [];
    if (this.#timer !== null) this.#parts.clock.clearTimeout(this.#timer);
  }

  #find(version: number): Replica | null {
    const found = this.#kept.find(({ replica }) => replica.version === version);
    if (found === undefined) return null;
    found.usedAt = this.#parts.clock.monotonic();
    return found.replica;
  }

  async #rebuild(version: number): Promise<Replica> {
    // Who was before us may have wanted the same.
    const found = this.#find(version);
    if (found !== null) return found;
    const replica = this.#takeEarlier(version) ?? (await this.#load(version));
    const outcome = await replayTo(this.#parts, replica, version, () => this.#isStopped);
    switch (outcome) {
      case "reached":
        this.#keep(replica);
        return replica;
      case "gap":
        throw new RpcError(Status.OUT_OF_RANGE, `version ${version} was dropped from the history just now`);
      case "broken":
        throw new RpcError(Status.DATA_LOSS, `the log cannot be read on from version ${replica.version}`);
      case "silent":
      case "stopped":
        throw unreadable();
    }
  }

  /** A kept state that is a little earlier; it is kept no longer, since it is changed now. */
  #takeEarlier(version: number): Replica | null {
    let best: Kept | null = null;
    for (const kept of this.#kept) {
      const isUsable = kept.replica.version < version && version - kept.replica.version <= furtherMax;
      if (isUsable && (best === null || kept.replica.version > best.replica.version)) best = kept;
    }
    if (best === null) return null;
    this.#kept = this.#kept.filter((kept) => kept !== best);
    return best.replica;
  }

  async #load(version: number): Promise<Replica> {
    // Room for the one that is made (P2).
    while (this.#kept.length >= pastsMax) this.#forgetOldest();
    const base = await loadBase(this.#parts, ({ bases }) =>
      // A snapshot does not tell who led; the record after it does.
      this.#isStopped ? null : bases.some((each) => each < version) ? version - 1 : version,
    );
    if (base === null || base.kind === "unreadable") throw unreadable();
    if (base.kind === "compacted") throw await notKept(this.#parts, version, base.oldest);
    return base.replica;
  }

  #keep(replica: Replica): void {
    if (this.#isStopped) return;
    this.#kept.push({ replica, usedAt: this.#parts.clock.monotonic() });
    while (this.#kept.length > 1 && this.#objects() > objectsMax) this.#forgetOldest();
    this.#timer ??= this.#parts.clock.setTimeout(() => this.#sweep(), keptMs);
  }

  #objects(): number {
    let objects = 0;
    for (const { replica } of this.#kept) for (const table of tableNames) objects += replica.count(table);
    return objects;
  }

  #forgetOldest(): void {
    const oldest = Math.min(...this.#kept.map(({ usedAt }) => usedAt));
    const at = this.#kept.findIndex(({ usedAt }) => usedAt === oldest);
    this.#kept.splice(at, 1);
  }

  #sweep(): void {
    const { clock } = this.#parts;
    this.#kept = this.#kept.filter(({ usedAt }) => clock.monotonic() - usedAt < keptMs);
    this.#timer = this.#kept.length === 0 ? null : clock.setTimeout(() => this.#sweep(), keptMs);
  }
}
