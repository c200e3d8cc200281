/**
 * SHA-256 (FIPS 180-4) of short texts, for ids that every manager derives identically. Not for secrets: it is optimized for
 * size, because machines import no libraries.
 */
const mask = 0xffff_ffff;

function isPrime(candidate: number): boolean {
  for (let divisor = 2; divisor * divisor <= candidate; divisor++) if (candidate % divisor === 0) return false;
  return true;
}

function primes(count: number): number[] {
  const found: number[] = [];
  for (let candidate = 2; found.length < count; candidate++) if (isPrime(candidate)) found.push(candidate);
  return found;
}

/** The first 32 bits of a root's fraction, in integer arithmetic: floating point is not exact enough for cube roots. */
function fractionOfRoot(prime: number, degree: 2 | 3): number {
  const target = BigInt(prime) << BigInt(32 * degree);
  let low = 0n;
  let high = 1n << 48n;
  while (high - low > 1n) {
    const middle = (low + high) / 2n;
    if (middle ** BigInt(degree) <= target) low = middle;
    else high = middle;
  }
  return Number(low & 0xffff_ffffn);
}

const roundConstants = primes(64).map((prime) => fractionOfRoot(prime, 3));
const initialHash = primes(8).map((prime) => fractionOfRoot(prime, 2));

const rotated = (value: number, by: number): number => (value >>> by) | (value << (32 - by));

function padded(text: string): DataView {
  const bytes = new TextEncoder().encode(text);
  const whole = new Uint8Array(Math.ceil((bytes.length + 9) / 64) * 64);
  whole.set(bytes);
  whole[bytes.length] = 0x80;
  const view = new DataView(whole.buffer);
  view.setBigUint64(whole.length - 8, BigInt(bytes.length) * 8n);
  return view;
}

/** 32 bytes. */
export function sha256(text: string): Uint8Array {
  const input = padded(text);
  const hash = Int32Array.from(initialHash);
  const words = new Int32Array(64);
  for (let block = 0; block < input.byteLength; block += 64) {
    for (let at = 0; at < 16; at++) words[at] = input.getInt32(block + at * 4);
    for (let at = 16; at < 64; at++) {
      const [early, late] = [words[at - 15] as number, words[at - 2] as number];
      const small = rotated(early, 7) ^ rotated(early, 18) ^ (early >>> 3);
      const great = rotated(late, 17) ^ rotated(late, 19) ^ (late >>> 10);
      words[at] = ((words[at - 16] as number) + small + (words[at - 7] as number) + great) & mask;
    }
    let [a, b, c, d, e, f, g, h] = hash as unknown as [number, number, number, number, number, number, number, number];
    for (let at = 0; at < 64; at++) {
      const choice = (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & f) ^ (~e & g));
      const first = (h + choice + (roundConstants[at] as number) + (words[at] as number)) & mask;
      const second = ((rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) & mask;
      [a, b, c, d, e, f, g, h] = [(first + second) & mask, a, b, c, (d + first) & mask, e, f, g];
    }
    for (const [at, value] of [a, b, c, d, e, f, g, h].entries()) hash[at] = (hash[at] as number) + value;
  }
  const bytes = new DataView(new ArrayBuffer(32));
  for (const [at, word] of hash.entries()) bytes.setInt32(at * 4, word);
  return new Uint8Array(bytes.buffer);
}

const letters = "abcdefghijklmnopqrstuvwxyz234567";

/** 24 characters of base 32 (120 bits): letters and digits, which kernels accept in names. */
export function shortDigest(text: string): string {
  let digest = "";
  let bits = 0;
  let held = 0;
  for (const byte of sha256(text).subarray(0, 15)) {
    held = (held << 8) | byte;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      digest += letters[(held >>> bits) & 31];
    }
    held &= 0xff;
  }
  return digest;
}
