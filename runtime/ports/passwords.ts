/** The port for passwords. `runtime/system/scrypt.ts` uses scrypt; the simulation uses a fast hash. */
import { createHash } from "node:crypto";

/** Hex digits of a mark: 128 bits, the size of a salt. */
const markDigits = 32;

/**
 * Identifies one password of a user without revealing anything about it, since each password has its own salt. Certificates
 * contain it.
 */
export function markOfSalt(salt: Uint8Array): string {
  return createHash("sha256").update("muster user certificate\0").update(salt).digest("hex").slice(0, markDigits);
}

/** The stored form of a password. */
export interface HashedPassword {
  readonly salt: Uint8Array;
  readonly key: Uint8Array;
  readonly cost: number;
  readonly blockSize: number;
  readonly parallelism: number;
}

/** This process's queue of password checks is full. */
export class PasswordsBusy extends Error {
  override readonly name = "PasswordsBusy";
}

export interface Passwords {
  /** Rejects with PasswordsBusy. */
  hash(password: string): Promise<HashedPassword>;
  /** Null stands for an unknown name: resolves to false after the same work. Rejects with PasswordsBusy. */
  verify(password: string, hashed: HashedPassword | null): Promise<boolean>;
}
