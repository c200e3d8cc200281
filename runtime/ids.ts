/** Identifiers as SwarmKit makes them, so that a stock engine can put ours into host names and container names. */
import type { Random } from "./ports.ts";

/** Characters of every id. */
const idLength = 25;
const idBytes = 17;
/** By byte: parsing text is how a BigInt is made fastest, 2 µs an id rather than 6. */
const hex = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

/**
 * A fresh id: 17 random bytes with the top bit of the first set, written in base 36 (27 digits); the first digit, which
 * hardly varies, is dropped and the next 25 are kept.
 */
export function newId(random: Random): string {
  let digits = "0x";
  for (const [at, byte] of random.bytes(idBytes).entries()) digits += hex[at === 0 ? byte | 0x80 : byte];
  return BigInt(digits)
    .toString(36)
    .slice(1, 1 + idLength);
}

/** True for text that may stand as one token of a subject, and so for every id of ours. */
export function isSubjectToken(text: string): boolean {
  return /^[A-Za-z0-9_-]+$/.test(text);
}
