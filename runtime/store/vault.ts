/**
 * A manager's own keys on its own disk: its TLS key, the data keys, and the peers to contact when a key is missing. One file,
 * always written whole, so that after a crash at any moment it is the old one or the new one.
 *
 *   absent ─▶ open ◀─▶ open, kept locked on the disk ─(restart)─▶ locked ─(the unlock key)─▶ open …
 *
 * V1: at every moment exactly one key opens the file on disk: the one it was last written with, old or new.
 * V2: while it is locked on disk, none of it is readable there.
 */
import { KeyFile, KeyFileContents, type DataKey, type Sealed } from "../../proto/gen/messages.ts";
import type { Random, Subscription } from "../ports/index.ts";
import type { KeyStore } from "./keyring.ts";
import { fingerprint, open, seal, type SealedFor } from "./seal.ts";

/** The disk's part. `write` returns when the bytes survive a power failure, or throws with the old ones unchanged. */
export interface KeyFileDisk {
  read(): Uint8Array | null;
  write(data: Uint8Array): void;
}

type OpenedVault =
  | { readonly kind: "open"; readonly vault: Vault }
  | { readonly kind: "locked"; readonly vault: LockedVault }
  | { readonly kind: "broken"; readonly reason: string };

const sealedFor: SealedFor = { purpose: "key file", place: "" };

/** The contents other than the keyring's. */
type VaultFields = Pick<
  KeyFileContents,
  | "nodeKey"
  | "nodeCertificate"
  | "rootCertificate"
  | "peers"
  | "natsCaCertificate"
  | "natsCaKey"
  | "natsServers"
  | "natsCluster"
  | "natsAuthorities"
>;

/** An absent file counts as open and empty. */
export function openVault(disk: KeyFileDisk, random: Random): OpenedVault {
  const bytes = disk.read();
  if (bytes === null) return { kind: "open", vault: new Vault(disk, random, KeyFileContents.create({}), null) };
  let file: KeyFile;
  try {
    file = KeyFile.decode(bytes);
  } catch {
    return { kind: "broken", reason: "it is not a key file" };
  }
  if (file.locked !== null) return { kind: "locked", vault: new LockedVault(disk, random, file.locked) };
  if (file.open === null) return { kind: "broken", reason: "it has no contents" };
  return { kind: "open", vault: new Vault(disk, random, file.open, null) };
}

export class LockedVault {
  readonly #disk: KeyFileDisk;
  readonly #random: Random;
  readonly #sealed: Sealed;

  constructor(disk: KeyFileDisk, random: Random, sealed: Sealed) {
    this.#disk = disk;
    this.#random = random;
    this.#sealed = sealed;
  }

  /** Does not change the disk. */
  unlock(
    unlockKey: Uint8Array,
  ): { readonly kind: "open"; readonly vault: Vault } | { readonly kind: "wrong key" | "broken" } {
    if (fingerprint(unlockKey) !== this.#sealed.keyId) return { kind: "wrong key" };
    const bytes = open(unlockKey, this.#sealed, sealedFor);
    if (bytes === null) return { kind: "broken" };
    try {
      return { kind: "open", vault: new Vault(this.#disk, this.#random, KeyFileContents.decode(bytes), unlockKey) };
    } catch {
      return { kind: "broken" };
    }
  }
}

export class Vault implements KeyStore {
  readonly #disk: KeyFileDisk;
  readonly #random: Random;
  readonly #onRelock = new Set<() => void>();
  #contents: KeyFileContents;
  /** The key that locks the file on disk; null: unlocked. */
  #unlockKey: Uint8Array | null;
  #failure: string | null = null;

  constructor(disk: KeyFileDisk, random: Random, contents: KeyFileContents, unlockKey: Uint8Array | null) {
    this.#disk = disk;
    this.#random = random;
    this.#contents = contents;
    this.#unlockKey = unlockKey;
  }

  get dataKeys(): readonly DataKey[] {
    return this.#contents.dataKeys;
  }

  get plainThrough(): number {
    return this.#contents.plainThrough;
  }

  get fields(): VaultFields {
    return this.#contents;
  }

  /** Why the last write failed, leaving the file unchanged; null if it succeeded. */
  get failure(): string | null {
    return this.#failure;
  }

  /** Fingerprint of the key that locks the file on disk; empty: unlocked. */
  get lock(): string {
    return this.#unlockKey === null ? "" : fingerprint(this.#unlockKey);
  }

  /** Durable when this returns. Throws the disk's errors, with nothing changed. */
  update(change: Partial<KeyFileContents>): void {
    this.#write(KeyFileContents.patch(this.#contents, change), this.#unlockKey);
  }

  /**
   * V1. From now on the file on disk is locked with this key, or open for null. Throws the disk's errors, with nothing changed.
   */
  relock(unlockKey: Uint8Array | null): void {
    const isSame = (unlockKey === null ? "" : fingerprint(unlockKey)) === this.lock;
    if (isSame) return;
    this.#write(this.#contents, unlockKey);
    for (const listener of this.#onRelock) listener();
  }

  /** Called after the file was written with another lock. */
  onRelock(listener: () => void): Subscription {
    this.#onRelock.add(listener);
    return { unsubscribe: () => this.#onRelock.delete(listener) };
  }

  #write(contents: KeyFileContents, unlockKey: Uint8Array | null): void {
    try {
      this.#disk.write(KeyFile.encode(fileOf(contents, unlockKey, this.#random)));
    } catch (error) {
      this.#failure = error instanceof Error ? error.message : String(error);
      throw error;
    }
    this.#failure = null;
    this.#contents = contents;
    this.#unlockKey = unlockKey;
  }
}

/** V2 */
function fileOf(contents: KeyFileContents, unlockKey: Uint8Array | null, random: Random): KeyFile {
  if (unlockKey === null) return KeyFile.create({ open: contents });
  const key = { id: fingerprint(unlockKey), key: unlockKey };
  return KeyFile.create({ locked: seal(key, KeyFileContents.encode(contents), random, sealedFor) });
}
