/**
 * The data keys of this manager, and which of them seals new records. Nothing is kept in NATS: the keys are in the key file
 * (vault.ts), which is written before a key is used.
 *
 * Y1: nothing is sealed under a key that is not safe on this manager's disk.
 * Y2: a key is never deleted, so that everything still in the log can be read.
 * Y3: from the first data key on, unsealed records are rejected: `plainThrough` is the last unsealed one.
 */
import { DataKey, HeldKey } from "../../proto/gen/messages.ts";
import type { Random, Subscription } from "../ports/index.ts";
import { aesSealing, sealKeyBytes, type Sealing } from "./seal.ts";

/** The keyring's persistence: saved when `update` returns; it throws otherwise. */
export interface KeyStore {
  readonly dataKeys: readonly DataKey[];
  readonly plainThrough: number;
  update(change: { readonly dataKeys: readonly DataKey[]; readonly plainThrough: number }): void;
}

/** Bytes of a key's id before hex encoding: enough that two managers never generate the same id. */
const idBytes = 8;

export class Keyring {
  /** How its keys seal. */
  readonly sealing: Sealing;
  readonly #store: KeyStore;
  readonly #random: Random;
  readonly #onChange = new Set<() => void>();
  /** Ids of keys for lack of which something could not be read. */
  readonly #missing = new Set<string>();
  /** Those among them that a record waits for. */
  readonly #unread = new Set<string>();
  #currentId = "";
  /** The last record of the log met by any reader. */
  #metThrough = 0;

  constructor(store: KeyStore, random: Random, sealing: Sealing = aesSealing) {
    this.sealing = sealing;
    this.#store = store;
    this.#random = random;
  }

  get keys(): readonly DataKey[] {
    return this.#store.dataKeys;
  }

  /** As reported to other managers. */
  get held(): readonly HeldKey[] {
    return this.keys.map(({ id, generation }) => HeldKey.create({ id, generation }));
  }

  get missing(): readonly string[] {
    return [...this.#missing];
  }

  /** Ids of the keys without which the log cannot be read further. */
  get unread(): readonly string[] {
    return [...this.#unread];
  }

  get plainThrough(): number {
    return this.keys.length === 0 ? Number.POSITIVE_INFINITY : this.#store.plainThrough;
  }

  find(id: string): DataKey | undefined {
    return this.keys.find((key) => key.id === id);
  }

  /** The key that seals records: that of the last record, or the newest until one was read. Null while there is none. */
  get current(): DataKey | null {
    return this.find(this.#currentId) ?? newest(this.keys);
  }

  /** The key for appending after that sequence; creates the cluster's first key. Throws the errors of saving it. */
  forAppend(last: number): DataKey {
    return this.current ?? this.#add(this.#fresh(""), last);
  }

  /** Creates and saves another key, which does not seal anything yet. Throws the errors of saving it. */
  make(lock: string): DataKey {
    return this.#add(this.#fresh(lock), this.#store.plainThrough);
  }

  /** Adds another manager's keys. Throws the errors of saving them. */
  take(keys: readonly DataKey[], plainThrough: number): void {
    const fresh = keys.filter(({ id, key }) => id !== "" && key.length === sealKeyBytes && this.find(id) === undefined);
    const through = Math.max(this.#store.plainThrough, plainThrough);
    if (fresh.length === 0 && through === this.#store.plainThrough) return;
    this.#store.update({ dataKeys: [...this.keys, ...fresh], plainThrough: through });
    for (const { id } of fresh) this.clearMissing(id);
    this.#changed();
  }

  /** Seals records after `last` with this key, until the log has another one there: an append may be in progress. */
  use(id: string, last: number): void {
    if (this.find(id) === undefined) return;
    this.#currentId = id;
    this.#metThrough = Math.max(this.#metThrough, last);
  }

  /** The log has a record of that sequence under that key. Readers of the past meet old ones, which are ignored. */
  met(sequence: number, id: string): void {
    if (sequence <= this.#metThrough) return;
    this.#metThrough = sequence;
    if (id === this.#currentId) return;
    this.#currentId = id;
    this.#changed();
  }

  /** Something cannot be read without this key: a record, or a snapshot, which may not be the only one. */
  reportMissing(id: string, what: "record" | "snapshot"): void {
    if (what === "record" && this.find(id) === undefined) this.#unread.add(id);
    if (this.find(id) !== undefined || this.#missing.has(id)) return;
    this.#missing.add(id);
    this.#changed();
  }

  /** The key is no longer reported missing until another read needs it: it may have been named by mistake. */
  clearMissing(id: string): void {
    this.#missing.delete(id);
    this.#unread.delete(id);
  }

  /** Called after keys arrive, when one is found missing, and when the log turns out to use another one. */
  onChange(listener: () => void): Subscription {
    this.#onChange.add(listener);
    return { unsubscribe: () => this.#onChange.delete(listener) };
  }

  #fresh(lock: string): DataKey {
    const generation = (newest(this.keys)?.generation ?? 0) + 1;
    const id = Buffer.from(this.#random.bytes(idBytes)).toString("hex");
    return DataKey.create({ id, generation, lock, key: this.#random.bytes(sealKeyBytes) });
  }

  /** Y1 */
  #add(key: DataKey, plainThrough: number): DataKey {
    this.#store.update({ dataKeys: [...this.keys, key], plainThrough });
    this.#changed();
    return key;
  }

  #changed(): void {
    for (const listener of this.#onChange) listener();
  }
}

/** The key of the highest generation; of two created at once, the one with the smaller id, so that all managers agree. */
export function newest<Key extends { readonly id: string; readonly generation: number }>(
  keys: readonly Key[],
): Key | null {
  let found: Key | null = null;
  for (const key of keys) {
    const isNewer =
      found === null || key.generation > found.generation || (key.generation === found.generation && key.id < found.id);
    if (isNewer) found = key;
  }
  return found;
}
