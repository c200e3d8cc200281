/**
 * Entries of a TierInfo's policy lists: names until Felix 3.31, PolicyID messages from 3.32, in the same fields with the same
 * wire type. They are distinguishable: a message begins with the tag of one of PolicyID's fields, a control character, which no
 * name begins with.
 */
import { PolicyID } from "./gen/felix.ts";

type TierEntry =
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "id"; readonly id: PolicyID }
  /** Neither; no Felix up to 3.32 writes this. */
  | { readonly kind: "unreadable" };

const [encoder, decoder] = [new TextEncoder(), new TextDecoder("utf-8", { fatal: true })];

/** The smallest byte that is not a control character. */
const textByteMin = 0x20;

export function tierEntries(names: readonly string[]): Uint8Array[] {
  return names.map((name) => encoder.encode(name));
}

export function readTierEntry(entry: Uint8Array): TierEntry {
  try {
    if (entry.length > 0 && (entry[0] as number) < textByteMin) return { kind: "id", id: PolicyID.decode(entry) };
    return { kind: "name", name: decoder.decode(entry) };
  } catch {
    return { kind: "unreadable" };
  }
}
