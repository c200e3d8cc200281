/** The port for passwords. `runtime/system/scrypt.ts` derives keys for good, a simulation as quickly as it can. */
import { createHash } from "node:crypto";

/** Hex digits of a mark: 128 bits, as many as a salt has. */
const markDigits = 32;

/**
 * What tells a password from every other one of the same user, without telling anything of it: each has a salt of its own. A
 * certificate carries it.
 */
export function markOfSalt(salt: Uint8Array): string {
  return createHash("sha256").update("muster user certificate\0").update(salt).digest("hex").slice(0, markDigits);
}

/** What is kept of a password. */
export interface HashedPassword {
  readonly salt: Uint8Array;
  readonly key: Uint8Array;
  readonly cost: number;
  readonly blockSize: number;
  readonly parallelism: number;
}

/** More is asked for at the moment than this process works off. */
export class PasswordsBusy extends Error {
  override readonly name = "PasswordsBusy";
}

export interface Passwords {
  /** Rejects with PasswordsBusy. */
  hash(password: string): Promise<HashedPassword>;
  /** Null stands for a name that does not exist: false, after the same work. Rejects with PasswordsBusy. */
  verify(password: string, hashed: HashedPassword | null): Promise<boolean>;
}
