/** Seeded randomness. The same seed and the same path of forks give the same draws, on every machine. */
import type { Random } from "../ports/index.ts";

const twoTo32 = 0x1_0000_0000;

/** Blackman's and Vigna's xoshiro128**: a small state, and good enough in all bits for drawing faults. */
export class SimRandom implements Random {
  readonly #path: string;
  readonly #forks = new Map<string, number>();
  #a: number;
  #b: number;
  #c: number;
  #d: number;

  /** `path` is the seed with the names of the forks that led here. */
  constructor(path: string) {
    this.#path = path;
    const mix = mixer(path);
    this.#a = mix();
    this.#b = mix();
    this.#c = mix();
    // The state must not be all zeros.
    this.#d = mix() | 1;
  }

  /** Uniform 32 bits. */
  #draw(): number {
    const b = this.#b;
    const mixed = Math.imul(rotate(Math.imul(b, 5), 7), 9) >>> 0;
    const shifted = b << 9;
    this.#c ^= this.#a;
    this.#d ^= b;
    this.#b = b ^ this.#c;
    this.#a ^= this.#d;
    this.#c ^= shifted;
    this.#d = rotate(this.#d, 11);
    return mixed;
  }

  next(): number {
    return ((this.#draw() >>> 5) * 0x400_0000 + (this.#draw() >>> 6)) / 0x20_0000_0000_0000;
  }

  below(bound: number): number {
    return Math.floor(this.next() * bound);
  }

  bytes(count: number): Uint8Array {
    const bytes = new Uint8Array(count);
    let word = 0;
    for (let at = 0; at < count; at += 1) {
      if (at % 4 === 0) word = this.#draw();
      bytes[at] = word & 0xff;
      word >>>= 8;
    }
    return bytes;
  }

  /** Independent of the draws here. A second fork with the same name is a different stream. */
  fork(name: string): SimRandom {
    const count = this.#forks.get(name) ?? 0;
    this.#forks.set(name, count + 1);
    return new SimRandom(`${this.#path}/${name}${count === 0 ? "" : `#${count}`}`);
  }

  /** True with this probability (0 to 1). Draws even if the answer is certain. */
  chance(probability: number): boolean {
    return this.next() < probability;
  }

  /** Uniform in [least, most). */
  between(least: number, most: number): number {
    return least + this.next() * (most - least);
  }

  /** One of the items, which must not be empty. */
  pick<Item>(items: readonly Item[]): Item {
    const item = items[this.below(items.length)];
    if (item === undefined) throw new RangeError("cannot pick from an empty list");
    return item;
  }
}

function rotate(value: number, by: number): number {
  return (value << by) | (value >>> (32 - by));
}

/** Derives any number of 32-bit words from a text: FNV-1a over the text, then splitmix-style finishing. */
function mixer(text: string): () => number {
  let state = 0x811c_9dc5;
  for (let at = 0; at < text.length; at += 1) state = Math.imul(state ^ text.charCodeAt(at), 0x0100_0193);
  let second = 0x9e37_79b9;
  for (let at = text.length - 1; at >= 0; at -= 1) second = Math.imul(second ^ text.charCodeAt(at), 0x85eb_ca6b);
  return () => {
    state = (state + 0x9e37_79b9) | 0;
    second = Math.imul(second ^ (second >>> 15), 0x2c1b_3c6d) + 0x5bd1_e995;
    let word = state ^ second;
    word = Math.imul(word ^ (word >>> 16), 0x7feb_352d);
    word = Math.imul(word ^ (word >>> 15), 0x846c_a68b);
    return ((word ^ (word >>> 16)) >>> 0) % twoTo32;
  };
}
