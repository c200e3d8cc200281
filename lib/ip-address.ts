/** IPv4 and IPv6 addresses and prefixes as numbers. Pure: machines use it too. */
export interface Address {
  /** 4 or 6. */
  readonly family: 4 | 6;
  readonly value: bigint;
}

export interface Prefix extends Address {
  /** 0 to 32 or 128. */
  readonly length: number;
}

/** Length of the family's addresses in bits. */
export function bitsOf(family: 4 | 6): number {
  return family === 4 ? 32 : 128;
}

function parseV4(text: string): bigint | null {
  const parts = text.split(".");
  if (parts.length !== 4) return null;
  let value = 0;
  for (const part of parts) {
    const byte = Number(part);
    if (byte > 255 || !/^(?:0|[1-9]\d{0,2})$/.test(part)) return null;
    value = value * 256 + byte;
  }
  return BigInt(value);
}

/** `isEnd`: an address may end with an IPv4 address, but must not have one before its `::`. */
function parseGroups(text: string, isEnd: boolean): readonly bigint[] | null {
  if (text === "") return [];
  const groups: bigint[] = [];
  const parts = text.split(":");
  for (const [at, part] of parts.entries()) {
    if (isEnd && at === parts.length - 1 && part.includes(".")) {
      const last = parseV4(part);
      if (last === null) return null;
      groups.push(last >> 16n, last & 0xffffn);
    } else {
      if (!/^[0-9a-f]{1,4}$/i.test(part)) return null;
      groups.push(BigInt(`0x${part}`));
    }
  }
  return groups;
}

function parseV6(text: string): bigint | null {
  const halves = text.split("::");
  if (halves.length > 2) return null;
  const head = parseGroups(halves[0] as string, halves.length === 1);
  const tail = parseGroups(halves[1] ?? "", true);
  if (head === null || tail === null) return null;
  const missing = 8 - head.length - tail.length;
  if (halves.length === 1 ? missing !== 0 : missing < 1) return null;
  const groups = [...head, ...Array.from({ length: missing }, () => 0n), ...tail];
  return groups.reduce((value, group) => (value << 16n) | group, 0n);
}

/** RFC 4291, without zones, and without leading zeros in IPv4 (which some read as octal); null for anything else. */
export function parseAddress(text: string): Address | null {
  const family = text.includes(":") ? 6 : 4;
  const value = family === 6 ? parseV6(text) : parseV4(text);
  return value === null ? null : { family, value };
}

/** `10.0.0.0/8`; bits beyond the prefix are cleared. */
export function parseCidr(text: string): Prefix | null {
  const slash = text.indexOf("/");
  const address = slash < 0 ? null : parseAddress(text.slice(0, slash));
  const length = text.slice(slash + 1);
  if (address === null || !/^\d{1,3}$/.test(length) || Number(length) > bitsOf(address.family)) return null;
  return masked(address, Number(length));
}

/** The prefix of that length that contains the address. */
export function masked({ family, value }: Address, length: number): Prefix {
  const shift = BigInt(bitsOf(family) - length);
  return { family, value: (value >> shift) << shift, length };
}

export function containsAddress(prefix: Prefix, address: Address): boolean {
  return prefix.family === address.family && masked(address, prefix.length).value === prefix.value;
}

export function containsRange(outer: Prefix, inner: Prefix): boolean {
  return inner.length >= outer.length && containsAddress(outer, inner);
}

/** Number of addresses in the prefix: exact up to 2^53, which is a /75 in IPv6. */
export function prefixSize({ family, length }: Prefix): number {
  return 2 ** (bitsOf(family) - length);
}

/** The address at an offset from the start of the prefix. */
export function addressAt({ family, value }: Prefix, offset: number): string {
  if (family === 4) {
    const number = Number(value) + offset;
    return `${(number >>> 24) & 255}.${(number >>> 16) & 255}.${(number >>> 8) & 255}.${number & 255}`;
  }
  return formatV6(value + BigInt(offset));
}

/** RFC 5952: lower case, no leading zeros, the longest run of two or more zero groups as `::`. */
function formatV6(value: bigint): string {
  const groups = Array.from({ length: 8 }, (_, at) => (value >> BigInt(16 * (7 - at))) & 0xffffn);
  let [from, length] = [0, 1];
  for (let start = 0; start < 8; start += 1) {
    let end = start;
    while (end < 8 && groups[end] === 0n) end += 1;
    if (end - start > length) [from, length] = [start, end - start];
  }
  const text = (part: readonly bigint[]): string => part.map((group) => group.toString(16)).join(":");
  if (length < 2) return text(groups);
  return `${text(groups.slice(0, from))}::${text(groups.slice(from + length))}`;
}

/**
 * Offset of an IPv4 address in the prefix; -1 if it is not an IPv4 address or not in the prefix. Allocation-free, for hot
 * paths.
 */
export function offsetIn({ family, value, length }: Prefix, text: string): number {
  if (family !== 4) return -1;
  let [number, part, digits, dots] = [0, 0, 0, 0];
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === dot) {
      if (digits === 0 || (dots += 1) > 3) return -1;
      number = number * 256 + part;
      part = 0;
      digits = 0;
    } else if (code >= zero && code <= zero + 9) {
      // Some read a leading zero as octal, so it is rejected.
      if (digits > 0 && part === 0) return -1;
      part = part * 10 + (code - zero);
      if ((digits += 1) > 3 || part > 255) return -1;
    } else {
      return -1;
    }
  }
  if (dots !== 3 || digits === 0) return -1;
  const offset = number * 256 + part - Number(value);
  return offset >= 0 && offset < 2 ** (32 - length) ? offset : -1;
}

const dot = 0x2e;
const zero = 0x30;
