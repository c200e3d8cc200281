/**
 * Changes not yet sent to a driver. Changes of one object are merged into one message until the driver takes it, so the
 * queue is bounded by the number of objects, however slow the driver is and however often they change.
 *
 *   an object is sent before the objects that refer to it, and removed after them:
 *   sets, policies, profiles, endpoints · removed endpoints, profiles, policies, sets · pools and nodes
 *
 * O1: the sent state plus the queued changes equals the wanted state.
 * O2: only objects that were sent are removed, and no member is both added and removed in one message.
 * O3: InSync is sent once, when everything that was known at the time of the resync was sent.
 */
import { InSync } from "../../proto/gen/felix.ts";
import { membersOf, removalOf, updateOf, type Body, type Generation } from "./generation.ts";
import { keyOf, type DataplaneDelta, type DataplaneObject, type DataplaneRef } from "./objects.ts";

type Kind = DataplaneObject["kind"];

/** Positions in the send order. */
const updateRank: Readonly<Record<Kind, number>> = {
  "ip-set": 0,
  policy: 1,
  profile: 2,
  host: 3,
  workload: 3,
  pool: 8,
  node: 8,
};
const removalRank: Readonly<Record<Kind, number>> = {
  host: 4,
  workload: 4,
  profile: 5,
  policy: 6,
  "ip-set": 7,
  node: 9,
  pool: 9,
};
const ranks = 10;

type Waiting = { readonly kind: "update" } | { readonly kind: "removal"; readonly ref: DataplaneRef } | MemberChange;

interface MemberChange {
  readonly kind: "members";
  readonly id: string;
  readonly added: Set<string>;
  readonly removed: Set<string>;
}

interface WantedSet {
  readonly object: DataplaneObject & { readonly kind: "ip-set" };
  readonly members: Set<string>;
}

export class Outbox {
  readonly #generation: Generation;
  readonly #wanted = new Map<string, DataplaneObject>();
  readonly #sets = new Map<string, WantedSet>();
  /** Keys of the objects that the driver has. */
  readonly #sent = new Set<string>();
  readonly #waiting: readonly Map<string, Waiting>[] = Array.from({ length: ranks }, () => new Map<string, Waiting>());
  #inSync: "none" | "due" | "sent" = "none";

  constructor(generation: Generation) {
    this.#generation = generation;
  }

  /** Number of queued messages. */
  get size(): number {
    return this.#waiting.reduce((sum, { size }) => sum + size, 0);
  }

  get isInSync(): boolean {
    return this.#inSync === "sent";
  }

  apply(delta: DataplaneDelta): void {
    switch (delta.kind) {
      case "put":
        return this.#put(delta.object);
      case "members":
        return this.#change(delta.id, delta.added, delta.removed);
      case "removed":
        return this.#remove(delta.ref);
    }
  }

  /** A new driver process, which knows nothing: everything is sent again, then InSync. */
  resync(): void {
    this.#sent.clear();
    for (const rank of this.#waiting) rank.clear();
    for (const [key, { kind }] of this.#wanted) this.#waiting[updateRank[kind]]?.set(key, { kind: "update" });
    this.#inSync = "due";
  }

  /** Takes the next message; null when everything was sent. */
  next(): Body | null {
    for (const rank of this.#waiting) {
      for (const [key, waiting] of rank) {
        rank.delete(key);
        const body = this.#bodyOf(key, waiting);
        if (body !== null) return body;
      }
    }
    if (this.#inSync !== "due") return null;
    this.#inSync = "sent";
    return { inSync: InSync.create() }; // O3
  }

  #bodyOf(key: string, waiting: Waiting): Body | null {
    if (waiting.kind === "removal") {
      this.#sent.delete(key);
      return removalOf(waiting.ref, this.#generation);
    }
    if (waiting.kind === "members") return membersOf(waiting.id, waiting.added, waiting.removed);
    const object = this.#wanted.get(key);
    if (object === undefined) return null;
    const set = this.#sets.get(key);
    const current = set === undefined ? object : { ...set.object, members: [...set.members] };
    const body = updateOf(current, this.#generation);
    if (body !== null) this.#sent.add(key);
    return body;
  }

  #put(object: DataplaneObject): void {
    const key = keyOf(object);
    this.#wanted.set(key, object);
    if (object.kind === "ip-set") this.#sets.set(key, { object, members: new Set(object.members) });
    this.#waiting[removalRank[object.kind]]?.delete(key);
    this.#waiting[updateRank[object.kind]]?.set(key, { kind: "update" });
    // An earlier generation may lack this kind of object; the driver's version of the previous one must be removed.
    if (this.#sent.has(key) && updateOf(object, this.#generation) === null) this.#queueRemoval(object, key);
  }

  #remove(ref: DataplaneRef): void {
    const key = keyOf(ref);
    if (!this.#wanted.delete(key)) return;
    this.#sets.delete(key);
    this.#queueRemoval(ref, key);
  }

  #queueRemoval(ref: DataplaneRef, key: string): void {
    this.#waiting[updateRank[ref.kind]]?.delete(key);
    if (this.#sent.has(key)) this.#waiting[removalRank[ref.kind]]?.set(key, { kind: "removal", ref }); // O2
  }

  #change(id: string, added: readonly string[], removed: readonly string[]): void {
    const key = keyOf({ kind: "ip-set", id });
    const set = this.#sets.get(key);
    if (set === undefined) return;
    const rank = this.#waiting[updateRank["ip-set"]] as Map<string, Waiting>;
    const waiting = rank.get(key);
    // A whole update in the queue will contain the members of that time.
    const isWhole = waiting?.kind === "update" || !this.#sent.has(key);
    const change: MemberChange =
      waiting?.kind === "members" ? waiting : { kind: "members", id, added: new Set(), removed: new Set() };
    for (const member of removed) {
      if (!set.members.delete(member)) continue;
      if (!change.added.delete(member)) change.removed.add(member);
    }
    for (const member of added) {
      if (set.members.has(member)) continue;
      set.members.add(member);
      if (!change.removed.delete(member)) change.added.add(member);
    }
    if (isWhole) return;
    const size = change.added.size + change.removed.size;
    if (size === 0) rank.delete(key);
    // More changes than members: the whole set is shorter, and bounds the queue.
    else rank.set(key, size > set.members.size ? { kind: "update" } : change);
  }
}
