/**
 * The data keys that this manager holds, and which of them records are written under. Nothing is kept in NATS: the keys are
 * in the key file (vault.ts), which is written before a key is used.
 *
 * Y1: nothing is sealed under a key that is not safe on this manager's disk.
 * Y2: a key that was held once is held for good, so that whatever is still in the log can be read.
 * Y3: from the first data key on nothing unsealed is taken from the log: `plainThrough` is where that begins.
 */
import { DataKey, HeldKey } from "../../proto/gen/messages.ts";
import type { Random, Subscription } from "../ports.ts";
import { sealKeyBytes } from "./seal.ts";

/** What the keyring stands on: saved when `update` returns, or it throws. */
export interface KeyStore {
  readonly dataKeys: readonly DataKey[];
  readonly plainThrough: number;
  update(change: { readonly dataKeys: readonly DataKey[]; readonly plainThrough: number }): void;
}

/** Bytes of a key's id before it is written in hex: enough that two managers never make one id. */
const idBytes = 8;

export class Keyring {
  readonly #store: KeyStore;
  readonly #random: Random;
  readonly #onChange = new Set<() => void>();
  /** Ids that something could not be read for want of. */
  readonly #lacking = new Set<string>();
  /** Those of them that a record waits for. */
  readonly #unread = new Set<string>();
  #currentId = "";
  /** The last record of the log that was met, whoever read it. */
  #metThrough = 0;

  constructor(store: KeyStore, random: Random) {
    this.#store = store;
    this.#random = random;
  }

  get keys(): readonly DataKey[] {
    return this.#store.dataKeys;
  }

  /** As other managers are told. */
  get held(): readonly HeldKey[] {
    return this.keys.map(({ id, generation }) => HeldKey.create({ id, generation }));
  }

  get lacking(): readonly string[] {
    return [...this.#lacking];
  }

  /** Ids of keys without which the log is read no further. */
  get unread(): readonly string[] {
    return [...this.#unread];
  }

  get plainThrough(): number {
    return this.keys.length === 0 ? Number.POSITIVE_INFINITY : this.#store.plainThrough;
  }

  find(id: string): DataKey | undefined {
    return this.keys.find((key) => key.id === id);
  }

  /** What records are written under: the key of the last record, or the newest until one was read. Null while there is none. */
  get current(): DataKey | null {
    return this.find(this.#currentId) ?? newest(this.keys);
  }

  /** The key to append under after the record of that sequence; the cluster's first is made here. Throws what saving it throws. */
  forAppend(last: number): DataKey {
    return this.current ?? this.#add(this.#fresh(""), last);
  }

  /** Makes and saves a further key, under which nothing is written yet. Throws what saving it throws. */
  make(lock: string): DataKey {
    return this.#add(this.#fresh(lock), this.#store.plainThrough);
  }

  /** Takes what another manager holds. Throws what saving it throws. */
  take(keys: readonly DataKey[], plainThrough: number): void {
    const fresh = keys.filter(({ id, key }) => id !== "" && key.length === sealKeyBytes && this.find(id) === undefined);
    const through = Math.max(this.#store.plainThrough, plainThrough);
    if (fresh.length === 0 && through === this.#store.plainThrough) return;
    this.#store.update({ dataKeys: [...this.keys, ...fresh], plainThrough: through });
    for (const { id } of fresh) this.lackNoMore(id);
    this.#changed();
  }

  /** Records after `last` are written under it, until another one is met there: an append may be under way. */
  use(id: string, last: number): void {
    if (this.find(id) === undefined) return;
    this.#currentId = id;
    this.#metThrough = Math.max(this.#metThrough, last);
  }

  /** The log has a record of that sequence under that key. Those who look back meet old ones, which tell nothing. */
  met(sequence: number, id: string): void {
    if (sequence <= this.#metThrough) return;
    this.#metThrough = sequence;
    if (id === this.#currentId) return;
    this.#currentId = id;
    this.#changed();
  }

  /** Something cannot be read without it: a record, or a snapshot, beside which there may be others. */
  lack(id: string, what: "record" | "snapshot"): void {
    if (what === "record" && this.find(id) === undefined) this.#unread.add(id);
    if (this.find(id) !== undefined || this.#lacking.has(id)) return;
    this.#lacking.add(id);
    this.#changed();
  }

  /** What was to be read with it is looked at again: it may have been named by mistake. */
  lackNoMore(id: string): void {
    this.#lacking.delete(id);
    this.#unread.delete(id);
  }

  /** Called after keys came, when one is found to be lacking, and when the log turns out to be under another one. */
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

/** The key of the highest generation; of two made at once the one with the smaller id, so that all agree. */
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
