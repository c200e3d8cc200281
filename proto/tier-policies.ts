/**
 * The entries of a TierInfo's lists, which say which policies a tier of an endpoint has: names until Felix 3.31, PolicyID
 * messages from 3.32 on, in the same fields with the same wire type. They can be told apart: a message begins with the tag of
 * one of PolicyID's fields, a control character, with which no name begins.
 */
import { PolicyID } from "./gen/felix.ts";

export type TierEntry =
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "id"; readonly id: PolicyID }
  /** Neither: nothing that any Felix up to 3.32 writes. */
  | { readonly kind: "unreadable" };

const [encoder, decoder] = [new TextEncoder(), new TextDecoder("utf-8", { fatal: true })];

/** The first byte of a text that is not a control character. */
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
