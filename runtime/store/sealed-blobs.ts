/**
 * Snapshots as everything above sees them: stored sealed, returned open. A snapshot from before the first data key is accepted
 * unsealed if the log may still contain such records.
 */
import { Sealed, SnapshotPart, type DataKey } from "../../proto/gen/messages.ts";
import type { Blobs, Clock, Random } from "../ports/index.ts";
import type { Keyring } from "./keyring.ts";
import { joinDelimited, splitFirst } from "./record.ts";
import { splitTag, type SealedFor, type Sealing } from "./seal.ts";
import { SnapshotError } from "./snapshot.ts";
import { parseSnapshotName } from "./snapshots.ts";
import { sleep } from "./wait.ts";

/** Sealed or opened before the next turn of the event loop: about a millisecond. */
const sliceBytes = 1024 * 1024;

/** The key of a snapshot is missing (yet). */
export class KeyMissing extends Error {
  override readonly name = "KeyMissing";
}

function place(name: string): SealedFor {
  return { purpose: "snapshot", place: name };
}

export class SealedBlobs implements Blobs {
  readonly #blobs: Blobs;
  readonly #keyring: Keyring;
  readonly #random: Random;
  readonly #clock: Clock;

  constructor(blobs: Blobs, keyring: Keyring, { random, clock }: { readonly random: Random; readonly clock: Clock }) {
    this.#blobs = blobs;
    this.#keyring = keyring;
    this.#random = random;
    this.#clock = clock;
  }

  /** Rejects also without a data key, although a manager with state to store has read or written a record under one. */
  async put(name: string, data: Uint8Array): Promise<void> {
    const key = this.#keyring.current;
    if (key === null) throw new KeyMissing("there is no data key to seal a snapshot with");
    await this.#blobs.put(name, await this.#sealed(key, name, data));
  }

  /** Rejects with KeyMissing; with SnapshotError if the bytes are not what was sealed. */
  async get(name: string): Promise<Uint8Array | null> {
    const stored = await this.#blobs.get(name);
    if (stored === null) return null;
    const split = splitFirst(stored);
    const sealed = split === null ? null : sealedIn(split.first);
    if (split === null || sealed === null) {
      if ((parseSnapshotName(name) ?? Number.POSITIVE_INFINITY) <= this.#keyring.plainThrough) return stored;
      throw new SnapshotError("the snapshot is not sealed");
    }
    const key = this.#keyring.find(sealed.keyId);
    if (key === undefined) {
      this.#keyring.reportMissing(sealed.keyId, "snapshot");
      throw new KeyMissing(`the data key ${sealed.keyId} of ${name} is missing`);
    }
    const opened = await this.#opened(key, name, sealed.nonce, split.rest);
    // If the log continues after it, its records are under that key or a newer one.
    const sequence = parseSnapshotName(name);
    if (sequence !== null) this.#keyring.met(sequence, key.id);
    return opened;
  }

  list(): Promise<readonly string[]> {
    return this.#blobs.list();
  }

  remove(name: string): Promise<void> {
    return this.#blobs.remove(name);
  }

  async #sealed(key: DataKey, name: string, data: Uint8Array): Promise<Uint8Array> {
    const sealer = this.#keyring.sealing.sealer(key.key, this.#random, place(name));
    const sealed = Sealed.create({ keyId: key.id, nonce: sealer.nonce });
    const pieces: Uint8Array[] = [joinDelimited([SnapshotPart.encode(SnapshotPart.create({ sealed }))])];
    for await (const slice of this.#slices(data)) pieces.push(sealer.add(slice));
    return Buffer.concat([...pieces, sealer.end()]);
  }

  async #opened(key: DataKey, name: string, nonce: Uint8Array, ciphertext: Uint8Array): Promise<Uint8Array> {
    const split = splitTag(ciphertext);
    if (split === null) throw new SnapshotError("the sealed snapshot is too short");
    let opener: ReturnType<Sealing["opener"]>;
    try {
      opener = this.#keyring.sealing.opener(key.key, nonce, split.tag, place(name));
    } catch (cause) {
      throw new SnapshotError("the sealed snapshot has a malformed nonce", { cause });
    }
    const pieces: Uint8Array[] = [];
    for await (const slice of this.#slices(split.body)) pieces.push(opener.add(slice));
    if (!opener.end()) throw new SnapshotError("the snapshot is not what was sealed");
    return Buffer.concat(pieces);
  }

  async *#slices(data: Uint8Array): AsyncGenerator<Uint8Array> {
    for (let from = 0; from < data.length; from += sliceBytes) {
      if (from > 0) await sleep(this.#clock, 0);
      yield data.subarray(from, from + sliceBytes);
    }
  }
}

function sealedIn(first: Uint8Array): Sealed | null {
  try {
    return SnapshotPart.decode(first).sealed;
  } catch {
    return null;
  }
}
