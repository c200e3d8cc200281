/** Addresses and prefixes of both families, checked: what comes from outside reaches a rule in this spelling only. */
import { isIPv4, isIPv6 } from "node:net";

export type Family = 4 | 6;

/** A prefix; a single address is one of full length. Bits behind `length` are zero. */
export interface Net {
  readonly family: Family;
  readonly value: bigint;
  /** 0-32, or 0-128. */
  readonly length: number;
}

const lengthMax = { 4: 32, 6: 128 } as const;

export function parseAddress(text: string): Net | null {
  if (isIPv4(text)) return { family: 4, value: valueOf4(text), length: 32 };
  // A zone names an interface of the writer's host.
  if (isIPv6(text) && !text.includes("%")) return { family: 6, value: valueOf6(text), length: 128 };
  return null;
}

/** `ADDRESS/LENGTH`, or an address alone. Bits behind the length are cleared. */
export function parseNet(text: string): Net | null {
  const slash = text.indexOf("/");
  if (slash < 0) return parseAddress(text);
  const address = parseAddress(text.slice(0, slash));
  const digits = text.slice(slash + 1);
  if (address === null || !/^\d{1,3}$/.test(digits) || Number(digits) > address.length) return null;
  return shortened(address, Number(digits));
}

export function shortened({ family, value }: Net, length: number): Net {
  const free = BigInt(lengthMax[family] - length);
  return { family, value: (value >> free) << free, length };
}

export function contains(outer: Net, inner: Net): boolean {
  return (
    outer.family === inner.family &&
    outer.length <= inner.length &&
    shortened(inner, outer.length).value === outer.value
  );
}

/** One spelling for each prefix, as nft takes it; without a length when it is a single address. */
export function netText({ family, value, length }: Net): string {
  const address = family === 4 ? text4(value) : text6(value);
  return length === lengthMax[family] ? address : `${address}/${length}`;
}

/** Those that no other of them contains: nft refuses elements that overlap. */
export function outermost(nets: readonly Net[]): readonly Net[] {
  const kept: Net[] = [];
  for (const net of nets.toSorted((a, b) => a.length - b.length))
    if (!kept.some((outer) => contains(outer, net))) kept.push(net);
  return kept;
}

function valueOf4(text: string): bigint {
  return BigInt(text.split(".").reduce((value, part) => value * 256 + Number(part), 0));
}

function valueOf6(text: string): bigint {
  const dotted = /[\d.]+$/.exec(text)?.[0] ?? "";
  const plain = dotted.includes(".") ? text.slice(0, -dotted.length) + hexPair(valueOf4(dotted)) : text;
  const [head = "", tail] = plain.split("::");
  const before = head === "" ? [] : head.split(":");
  const after = tail === undefined || tail === "" ? [] : tail.split(":");
  const zeros = tail === undefined ? 0 : 8 - before.length - after.length;
  const groups = [...before, ...Array.from({ length: zeros }, () => "0"), ...after];
  return groups.reduce((value, group) => (value << 16n) | BigInt(Number.parseInt(group, 16)), 0n);
}

function hexPair(value: bigint): string {
  return `${(value >> 16n).toString(16)}:${(value & 0xffffn).toString(16)}`;
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
