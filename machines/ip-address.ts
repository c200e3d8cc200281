/** IP addresses and prefixes, both families, as numbers. */
export interface Address {
  /** 4 or 6. */
  readonly family: 4 | 6;
  readonly value: bigint;
}

export interface Prefix extends Address {
  /** 0 to 32 or 128. */
  readonly length: number;
}

function bitsOf(family: 4 | 6): number {
  return family === 4 ? 32 : 128;
}

function parseV4(text: string): bigint | null {
  const parts = text.split(".");
  if (parts.length !== 4) return null;
  let value = 0n;
  for (const part of parts) {
    if (!/^(?:0|[1-9]\d{0,2})$/.test(part) || Number(part) > 255) return null;
    value = (value << 8n) | BigInt(part);
  }
  return value;
}

function parseGroups(text: string): readonly bigint[] | null {
  if (text === "") return [];
  const groups: bigint[] = [];
  const parts = text.split(":");
  for (const [at, part] of parts.entries()) {
    if (at === parts.length - 1 && part.includes(".")) {
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
  const head = parseGroups(halves[0] as string);
  const tail = parseGroups(halves[1] ?? "");
  if (head === null || tail === null) return null;
  const missing = 8 - head.length - tail.length;
  if (halves.length === 1 ? missing !== 0 : missing < 1) return null;
  const groups = [...head, ...Array.from({ length: missing }, () => 0n), ...tail];
  return groups.reduce((value, group) => (value << 16n) | group, 0n);
}

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

function masked({ family, value }: Address, length: number): Prefix {
  const shift = BigInt(bitsOf(family) - length);
  return { family, value: (value >> shift) << shift, length };
}

export function containsAddress(prefix: Prefix, address: Address): boolean {
  return prefix.family === address.family && masked(address, prefix.length).value === prefix.value;
}

export function containsRange(outer: Prefix, inner: Prefix): boolean {
  return inner.length >= outer.length && containsAddress(outer, inner);
}
