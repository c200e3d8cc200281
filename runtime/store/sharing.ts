/**
 * Lets equal parts of many objects be one object. A service of 20,000 tasks repeats its spec, its annotations, node ids
 * and messages in each of them; every decoded copy would cost a kilobyte a task.
 *
 * It also frees what was decoded from the record: byte fields are views into the record they came from, and one small
 * field would keep a megabyte of record alive.
 */
import type { Codec } from "../../proto/codec.ts";
import { equalBytes, sha256, toHex } from "./record.ts";

/** Entries kept before starting over; starting over costs memory only. Ten for each of 1,000 services. */
const entriesMax = 10_000;

/** Remembers for each key the message given last, and hands that out for every equal one. */
export class SharedMessages<T> {
  readonly #codec: Codec<T>;
  readonly #isSame: ((a: T, b: T) => boolean) | null;
  readonly #known = new Map<string, { readonly message: T; readonly bytes: Uint8Array }>();

  /** `isSame` is for what is asked for each task: it must be exact, and cheaper than comparing encoded bytes. */
  constructor(codec: Codec<T>, isSame: ((a: T, b: T) => boolean) | null = null) {
    this.#codec = codec;
    this.#isSame = isSame;
  }

  share(key: string, message: T): T {
    const known = this.#known.get(key);
    if (known !== undefined && this.#isSame !== null && this.#isSame(known.message, message)) return known.message;
    return this.#shareBytes(key, this.#codec.encode(message));
  }

  /** Without a key: the first of all equal messages. */
  shareEqual(message: T): T {
    const bytes = this.#codec.encode(message);
    return this.#shareBytes(toHex(sha256(bytes)), bytes);
  }

  #shareBytes(key: string, bytes: Uint8Array): T {
    const known = this.#known.get(key);
    if (known !== undefined && equalBytes(known.bytes, bytes)) return known.message;
    const own = ownBytes(bytes);
    const message = this.#codec.decode(own);
    if (this.#known.size >= entriesMax) this.#known.clear();
    this.#known.set(key, { message, bytes: own });
    return message;
  }
}

export class SharedStrings {
  readonly #known = new Map<string, string>();
  /** The one asked for last: to compare two strings costs less than to hash one. */
  #last = "";

  /** The first of all equal strings. */
  share(text: string): string {
    if (text === this.#last) return this.#last;
    if (text === "") return "";
    const known = this.#known.get(text);
    if (known === undefined) {
      if (this.#known.size >= entriesMax) this.#known.clear();
      this.#known.set(text, text);
    }
    this.#last = known ?? text;
    return this.#last;
  }
}

/** The same message in a buffer of its own. */
export function detached<T>(codec: Codec<T>, message: T): T {
  return codec.decode(ownBytes(codec.encode(message)));
}

/** What an encoder returns is a part of Node's pool for small buffers, and one certificate would keep 64 KiB of it alive. */
function ownBytes(encoded: Uint8Array): Uint8Array {
  const own = Buffer.allocUnsafeSlow(encoded.length);
  own.set(encoded);
  return own;
}
