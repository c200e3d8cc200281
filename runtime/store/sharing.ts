/**
 * Shares equal parts between objects. A service of 20,000 tasks repeats its spec, its annotations, node ids and messages in
 * each task; decoded copies would cost a kilobyte per task.
 *
 * It also releases the record: decoded byte fields are views into the record that they came from, and one small field would
 * keep a megabyte of record in memory.
 */
import type { Codec } from "../../proto/codec.ts";
import { equalBytes, sha256, toHex } from "./record.ts";

/**
 * Look-ups for which an entry is kept without being found again, at least; twice as many at most. A service's parts are looked up
 * some thirty times for each of its tasks; those of removed services must not stay.
 */
const lookUpsKept = 10_000;

/** Entries that were set or found recently. One that is forgotten costs only memory: the next equal part is kept instead. */
class RecentEntries<Value> {
  #young = new Map<string, Value>();
  #old: ReadonlyMap<string, Value> = new Map();
  #lookUps = 0;

  get(key: string): Value | undefined {
    this.#lookUps += 1;
    if (this.#lookUps > lookUpsKept) [this.#lookUps, this.#old, this.#young] = [1, this.#young, new Map()];
    const young = this.#young.get(key);
    if (young !== undefined) return young;
    const old = this.#old.get(key);
    if (old !== undefined) this.#young.set(key, old);
    return old;
  }

  set(key: string, value: Value): void {
    this.#young.set(key, value);
  }
}

/** Remembers the last message for each key, and returns it for every equal one. */
export class SharedMessages<T> {
  readonly #codec: Codec<T>;
  readonly #isSame: ((a: T, b: T) => boolean) | null;
  readonly #known = new RecentEntries<{ readonly message: T; readonly bytes: Uint8Array }>();

  /** `isSame` is for parts that are shared for each task: it must be exact, and cheaper than comparing encoded bytes. */
  constructor(codec: Codec<T>, isSame: ((a: T, b: T) => boolean) | null = null) {
    this.#codec = codec;
    this.#isSame = isSame;
  }

  share(key: string, message: T): T {
    const known = this.#known.get(key);
    if (known !== undefined && this.#isSame !== null && this.#isSame(known.message, message)) return known.message;
    return this.#shareBytes(key, this.#codec.encode(message));
  }

  /** Without a key: returns the first of all equal messages. */
  shareEqual(message: T): T {
    const bytes = this.#codec.encode(message);
    return this.#shareBytes(toHex(sha256(bytes)), bytes);
  }

  #shareBytes(key: string, bytes: Uint8Array): T {
    const known = this.#known.get(key);
    if (known !== undefined && equalBytes(known.bytes, bytes)) return known.message;
    const own = ownBytes(bytes);
    const message = this.#codec.decode(own);
    this.#known.set(key, { message, bytes: own });
    return message;
  }
}

export class SharedStrings {
  readonly #known = new RecentEntries<string>();
  /** The last string: comparing two strings costs less than hashing one. */
  #last = "";

  /** Returns the first of all equal strings. */
  share(text: string): string {
    if (text === this.#last) return this.#last;
    if (text === "") return "";
    const known = this.#known.get(text);
    if (known === undefined) this.#known.set(text, text);
    this.#last = known ?? text;
    return this.#last;
  }
}

/** The same message in its own buffer. */
export function detached<T>(codec: Codec<T>, message: T): T {
  return codec.decode(ownBytes(codec.encode(message)));
}

/**
 * Copies the bytes: an encoder's result is part of Node's pool for small buffers, so one certificate would keep 64 KiB in
 * memory.
 */
function ownBytes(encoded: Uint8Array): Uint8Array {
  const own = Buffer.allocUnsafeSlow(encoded.length);
  own.set(encoded);
  return own;
}
