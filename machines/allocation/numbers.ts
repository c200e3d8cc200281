/**
 * Allocates numbers from 0 to a bound, one after the other: a released number is reused last, so that everyone who still
 * associates it with its former holder has time to learn otherwise.
 *
 * A bitmap of words, with a bitmap of full words above it, and so on: finding the next free number takes a few steps, however
 * many are taken.
 *
 * M1: a number has at most one holder.
 */

/** One bit each: two megabytes, enough for all addresses of an IPv4 /8. */
export const numbersMax = 2 ** 24;

const allOnes = 0xffff_ffff;

export class NumberSpace {
  readonly size: number;
  /**
   * Level 0 has a bit for each number; each other level has a bit for each word of the level below, set when that word is
   * full.
   */
  readonly #levels: Uint32Array[] = [];
  #used = 0;
  #next = 0;

  /** `size`: 1 to `numbersMax`. */
  constructor(size: number) {
    this.size = Math.min(size, numbersMax);
    let bits = this.size;
    do {
      const words = new Uint32Array(Math.ceil(bits / 32));
      // Bits beyond the end are never free.
      const rest = bits % 32;
      if (rest !== 0) words[words.length - 1] = allOnes << rest;
      this.#levels.push(words);
      bits = words.length;
    } while (bits > 1);
  }

  get used(): number {
    return this.#used;
  }

  has(number: number): boolean {
    return ((this.#word(0, number >>> 5) >>> (number & 31)) & 1) === 1;
  }

  /** False if the number is already taken (M1) or out of range. */
  claim(number: number): boolean {
    if (number < 0 || number >= this.size || this.has(number)) return false;
    this.#used += 1;
    let index = number;
    for (const words of this.#levels) {
      const at = index >>> 5;
      const word = ((words[at] as number) | (1 << (index & 31))) >>> 0;
      words[at] = word;
      if (word !== allOnes) break;
      index = at;
    }
    return true;
  }

  /** False if the number was free. */
  release(number: number): boolean {
    if (number < 0 || number >= this.size || !this.has(number)) return false;
    this.#used -= 1;
    let index = number;
    for (const words of this.#levels) {
      const at = index >>> 5;
      const wasFull = words[at] === allOnes;
      words[at] = ((words[at] as number) & ~(1 << (index & 31))) >>> 0;
      if (!wasFull) break;
      index = at;
    }
    return true;
  }

  /** The next free number is searched from here on. */
  continueAfter(number: number): void {
    this.#next = number + 1;
  }

  hasFree(first: number, last: number): boolean {
    const number = this.#freeFrom(first);
    return number >= 0 && number <= last;
  }

  /** Takes the next free number from `first` to `last` after the one taken before, wrapping around; -1 if there is none. */
  take(first = 0, last = this.size - 1): number {
    const from = this.#next < first || this.#next > last ? first : this.#next;
    let number = this.#freeFrom(from);
    if (number < 0 || number > last) number = this.#freeFrom(first);
    if (number < 0 || number > last) return -1;
    this.claim(number);
    this.#next = number + 1;
    return number;
  }

  #word(level: number, at: number): number {
    return this.#levels[level]?.[at] ?? allOnes;
  }

  /** The first free number at or after `from`; -1 if there is none. */
  #freeFrom(from: number): number {
    let index = from;
    for (let level = 0; level < this.#levels.length; level += 1) {
      const at = index >>> 5;
      const free = ~this.#word(level, at) & (allOnes << (index & 31));
      if (free !== 0) {
        index = at * 32 + lowestBit(free);
        for (let below = level - 1; below >= 0; below -= 1) index = index * 32 + lowestBit(~this.#word(below, index));
        return index;
      }
      index = at + 1;
    }
    return -1;
  }
}

function lowestBit(word: number): number {
  return 31 - Math.clz32(word & -word);
}
