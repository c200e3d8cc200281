/**
 * What a driver has not been told yet. Changes of one object are merged into one message until the driver takes it, so what
 * waits is bounded by the objects that there are, however slow the driver is and however often they change.
 *
 *   what a rule or an endpoint names is told before it, and taken back after it:
 *   sets, policies, profiles, endpoints · endpoints gone, profiles gone, policies gone, sets gone · pools and nodes
 *
 * O1: what the driver has been told, with what waits, is what is wanted.
 * O2: nothing is removed that the driver was not told of, and no member is both added and removed in one message.
 * O3: InSync is told once, when all that was known at the time of the resync has been.
 */
import { InSync } from "../../proto/gen/felix.ts";
import { membersOf, removalOf, updateOf, type Body, type Generation } from "./generation.ts";
import { keyOf, type DataplaneDelta, type DataplaneObject, type DataplaneRef } from "./objects.ts";

type Kind = DataplaneObject["kind"];

/** Places in the order of telling. */
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
  /** Keys of what the driver has. */
  readonly #told = new Set<string>();
  readonly #waiting: readonly Map<string, Waiting>[] = Array.from({ length: ranks }, () => new Map<string, Waiting>());
  #inSync: "none" | "due" | "told" = "none";

  constructor(generation: Generation) {
    this.#generation = generation;
  }

  /** How many messages wait. */
  get size(): number {
    return this.#waiting.reduce((sum, { size }) => sum + size, 0);
  }

  get isInSync(): boolean {
    return this.#inSync === "told";
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

  /** The driver is a new one, which knows nothing: all is told again, then InSync. */
  resync(): void {
    this.#told.clear();
    for (const rank of this.#waiting) rank.clear();
    for (const [key, { kind }] of this.#wanted) this.#waiting[updateRank[kind]]?.set(key, { kind: "update" });
    this.#inSync = "due";
  }

  /** Takes the next message; null when the driver has been told all. */
  next(): Body | null {
    for (const rank of this.#waiting) {
      for (const [key, waiting] of rank) {
        rank.delete(key);
        const body = this.#bodyOf(key, waiting);
        if (body !== null) return body;
      }
    }
    if (this.#inSync !== "due") return null;
    this.#inSync = "told";
    return { inSync: InSync.create() }; // O3
  }

  #bodyOf(key: string, waiting: Waiting): Body | null {
    if (waiting.kind === "removal") {
      this.#told.delete(key);
      return removalOf(waiting.ref, this.#generation);
    }
    if (waiting.kind === "members") return membersOf(waiting.id, waiting.added, waiting.removed);
    const object = this.#wanted.get(key);
    if (object === undefined) return null;
    const set = this.#sets.get(key);
    const current = set === undefined ? object : { ...set.object, members: [...set.members] };
    const body = updateOf(current, this.#generation);
    if (body !== null) this.#told.add(key);
    return body;
  }

  #put(object: DataplaneObject): void {
    const key = keyOf(object);
    this.#wanted.set(key, object);
    if (object.kind === "ip-set") this.#sets.set(key, { object, members: new Set(object.members) });
    this.#waiting[removalRank[object.kind]]?.delete(key);
    this.#waiting[updateRank[object.kind]]?.set(key, { kind: "update" });
    // An earlier driver cannot be told of every kind of object; what it has of the one before must go.
    if (this.#told.has(key) && updateOf(object, this.#generation) === null) this.#takeBack(object, key);
  }

  #remove(ref: DataplaneRef): void {
    const key = keyOf(ref);
    if (!this.#wanted.delete(key)) return;
    this.#sets.delete(key);
    this.#takeBack(ref, key);
  }

  #takeBack(ref: DataplaneRef, key: string): void {
    this.#waiting[updateRank[ref.kind]]?.delete(key);
    if (this.#told.has(key)) this.#waiting[removalRank[ref.kind]]?.set(key, { kind: "removal", ref }); // O2
  }

  #change(id: string, added: readonly string[], removed: readonly string[]): void {
    const key = keyOf({ kind: "ip-set", id });
    const set = this.#sets.get(key);
    if (set === undefined) return;
    const rank = this.#waiting[updateRank["ip-set"]] as Map<string, Waiting>;
    const waiting = rank.get(key);
    // A whole update that waits will have the members of then.
    const isWhole = waiting?.kind === "update" || !this.#told.has(key);
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
    // More changes than members: the whole is shorter, and bounds what waits.
    else rank.set(key, size > set.members.size ? { kind: "update" } : change);
  }
}
