/**
 * Earlier states of the cluster, rebuilt for readers, and cached briefly for the next read.
 *
 * P1: a returned state must be read at once: it may be advanced in the next turn.
 * P2: at most `pastsMax` states are in memory besides the current one, with at most `objectsMax` objects together unless one
 *     alone has more.
 */
import { RpcError, Status, type CallSignal } from "../../runtime/ports/rpc.ts";
import type { TimerHandle } from "../../runtime/ports/index.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import { tableNames } from "../../proto/table-names.ts";
import { loadBase, type PastParts } from "./base.ts";
import { notKept } from "./moment.ts";
import { replayTo } from "./replay.ts";
import type { Turns } from "./turns.ts";
import { unreadable } from "./version-at.ts";

/** Two suffice to compare before and after. */
const pastsMax = 2;
/** About 200 MB. */
const objectsMax = 200_000;
/** Idle time after which a state is dropped, in milliseconds: a command's reads come within one second. */
const keptMs = 20_000;
/** Advancing a cached state by up to this many records is preferred to loading a snapshot. */
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

  /** Number of states in memory. */
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
    // The caller before us may have wanted the same version.
    const found = this.#find(version);
    if (found !== null) return found;
    const replica = this.#takeEarlier(version) ?? (await this.#load(version));
    const outcome = await replayTo(this.#parts, replica, version, () => this.#isStopped);
    switch (outcome) {
      case "reached":
        this.#keep(replica);
        return replica;
      case "gap":
        throw new RpcError(Status.OUT_OF_RANGE, `version ${version} was just removed from the retained history`);
      case "broken":
        throw new RpcError(Status.DATA_LOSS, `cannot read the log beyond version ${replica.version}`);
      case "silent":
      case "stopped":
        throw unreadable();
    }
  }

  /** Takes out a cached, slightly earlier state, since it will be changed. */
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
    // Makes space for the new state (P2).
    while (this.#kept.length >= pastsMax) this.#forgetOldest();
    const base = await loadBase(this.#parts, ({ bases }) =>
      // A snapshot does not contain the leader; the record after it does.
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
