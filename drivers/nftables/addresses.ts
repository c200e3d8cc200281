/** Validated addresses and prefixes of both families: input reaches a rule only in this normalized form. */
import { bitsOf, containsRange, parseAddress, parseCidr, type Prefix } from "../../lib/ip-address.ts";

export type Family = 4 | 6;

/** `ADDRESS/LENGTH`, or an address, which is a prefix of full length. Clears the bits after the length. */
export function parseNet(text: string): Prefix | null {
  return text.includes("/") ? parseCidr(text) : parseHost(text);
}

/** A single address, as a prefix of full length. */
export function parseHost(text: string): Prefix | null {
  const address = parseAddress(text);
  return address === null ? null : { ...address, length: bitsOf(address.family) };
}

/** A prefix's normalized text in nft's syntax; without a length if it is a single address. */
export function netText({ family, value, length }: Prefix): string {
  const address = family === 4 ? text4(value) : text6(value);
  return length === bitsOf(family) ? address : `${address}/${length}`;
}

/** The prefixes that no other one contains: nft rejects overlapping elements. */
export function outermost(nets: readonly Prefix[]): readonly Prefix[] {
  const kept: Prefix[] = [];
  for (const net of nets.toSorted((a, b) => a.length - b.length))
    if (!kept.some((outer) => containsRange(outer, net))) kept.push(net);
  return kept;
}

function text4(value: bigint): string {
  const bits = Number(value);
  return `${(bits >>> 24) & 255}.${(bits >>> 16) & 255}.${(bits >>> 8) & 255}.${bits & 255}`;
}

function text6(value: bigint): string {
  const groups: string[] = [];
  for (let shift = 112n; shift >= 0n; shift -= 16n) groups.push(((value >> shift) & 0xffffn).toString(16));
  return groups.join(":");
}
