/**
 * Passwords through scrypt, by Node's OpenSSL, a few at a time off the event loop.
 *
 * P1: a wrong password costs its sender a whole derivation, whether or not the name exists.
 * P2: a correct password is then recognized by a digest under a key that only this process has, so that two thousand clients
 *     that reconnect at once do not wait for two thousand derivations. The faster answer reveals nothing to anyone without the
 *     password.
 * P3: the queue is bounded: requests beyond it are rejected.
 */
import { createHmac, randomBytes, scrypt, timingSafeEqual } from "node:crypto";
import { PasswordsBusy, type HashedPassword, type Passwords } from "../ports/passwords.ts";

/**
 * OWASP's Password Storage Cheat Sheet, the row with 32 MiB: N = 2^15, r = 8, p = 3. All rows cost an attacker the same; this
 * one lets a manager check two passwords at a time in 64 MiB.
 */
export const scryptDefaults = { cost: 2 ** 15, blockSize: 8, parallelism: 3 } as const;
/** RFC 7914 requires neither; 16 and 32 bytes are what OWASP and OpenSSL use. */
const saltBytes = 16;
const keyBytes = 32;
/** Concurrent derivations: Node's pool has four threads, which files and DNS need too. */
const activeMax = 2;
/** P3: about twenty seconds of derivations; by then clients have given up. */
const waitingMax = 100;
/** Passwords that are recognized (P2). */
const recognisedMax = 10_000;
/** Limits what a record from elsewhere can make this process spend. */
const memoryBytesMax = 256 * 1_024 * 1_024;

interface ScryptOptions {
  /** Lower costs are for tests. */
  readonly cost: number;
  readonly blockSize: number;
  readonly parallelism: number;
}

/** The derivation itself. */
type Derive = (password: string, salt: Uint8Array, options: ScryptOptions) => Promise<Buffer>;

const derive: Derive = (password, salt, { cost, blockSize, parallelism }) =>
  new Promise((resolve, reject) => {
    const options = { N: cost, r: blockSize, p: parallelism, maxmem: memoryBytesMax };
    scrypt(password, salt, keyBytes, options, (error, key) => {
      if (error === null) resolve(key);
      else reject(error);
    });
  });

export class Scrypt implements Passwords {
  readonly #options: ScryptOptions;
  readonly #deriveWith: Derive;
  readonly #processKey = randomBytes(keyBytes);
  readonly #decoy: HashedPassword;
  readonly #recognised = new Set<string>();
  readonly #waiting: (() => void)[] = [];
  #active = 0;

  constructor(options: ScryptOptions = scryptDefaults, deriveWith: Derive = derive) {
    this.#options = options;
    this.#deriveWith = deriveWith;
    this.#decoy = { ...options, salt: randomBytes(saltBytes), key: randomBytes(keyBytes) };
  }

  async hash(password: string): Promise<HashedPassword> {
    const salt = randomBytes(saltBytes);
    return { ...this.#options, salt, key: await this.#derive(password, { ...this.#options, salt }) };
  }

  async verify(password: string, hashed: HashedPassword | null): Promise<boolean> {
    const mark = hashed === null ? "" : this.#markOf(password, hashed);
    if (hashed !== null && this.#recognised.has(mark)) return true;
    const wanted = hashed ?? this.#decoy;
    const key = await this.#derive(password, wanted);
    const isRight = key.length === wanted.key.length && timingSafeEqual(key, wanted.key) && hashed !== null;
    if (isRight) this.#recognise(mark);
    return isRight;
  }

  #markOf(password: string, { salt, key }: HashedPassword): string {
    return createHmac("sha256", this.#processKey).update(salt).update(key).update(password).digest("base64");
  }

  #recognise(mark: string): void {
    this.#recognised.add(mark);
    if (this.#recognised.size <= recognisedMax) return;
    const [oldest] = this.#recognised;
    if (oldest !== undefined) this.#recognised.delete(oldest);
  }

  async #derive(
    password: string,
    { salt, cost, blockSize, parallelism }: Omit<HashedPassword, "key">,
  ): Promise<Buffer> {
    if (this.#active >= activeMax) {
      if (this.#waiting.length >= waitingMax) throw new PasswordsBusy("too many passwords are being checked");
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    } else this.#active += 1;
    try {
      return await this.#deriveWith(password.normalize("NFKC"), salt, { cost, blockSize, parallelism });
    } finally {
      // The next waiter takes this one's place, so that no new request overtakes it.
      const next = this.#waiting.shift();
      if (next === undefined) this.#active -= 1;
      else next();
    }
  }
}
