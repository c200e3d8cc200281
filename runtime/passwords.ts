/** The port for passwords. `runtime/system/scrypt.ts` derives keys for good, a simulation as quickly as it can. */

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
