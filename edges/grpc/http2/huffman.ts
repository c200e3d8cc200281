/**
 * HPACK's Huffman code (RFC 7541, appendix B). The code is canonical, so the lengths alone define it: one base-36 digit for
 * each of the 256 bytes and for the end of string.
 */
import { ConnectionError, ErrorCode } from "./protocol.ts";

const lengths =
  "dnsssssssoussussssssssusssssssss6aacd68baa8b8666555666666678f6cad67777777777777777777777878djde6f56565666577666567655677777fbeds" +
  "kmkkmmmnmnnnnnonoomnonnnnlmnmnnomlkmmnnlnmmolmnnllmlnmnnkmmmnmmnqqkjmnmpqqqrrqopjlqrrqrollqqsrrrkoklmllnmmppooqnqrqqrrrrrsrrrrrqu";
const endOfString = 256;
/** A leaf is -1 - symbol, an inner node the index of its two children. */
const tree: number[] = [0, 0];

{
  const symbols = Array.from(lengths, (digit, symbol) => ({ symbol, length: Number.parseInt(digit, 36) }));
  symbols.sort((a, b) => a.length - b.length || a.symbol - b.symbol);
  let code = 0;
  let lengthBefore = 0;
  for (const { symbol, length } of symbols) {
    code *= 2 ** (length - lengthBefore);
    lengthBefore = length;
    let node = 0;
    for (let bit = length - 1; bit >= 0; bit -= 1) {
      const slot = node + (Math.floor(code / 2 ** bit) & 1);
      if (bit === 0) tree[slot] = -1 - symbol;
      else {
        if (tree[slot] === 0) {
          tree[slot] = tree.length;
          tree.push(0, 0);
        }
        node = tree[slot] as number;
      }
    }
    code += 1;
  }
}

const nodes = Int16Array.from(tree);

/** Decodes the text of bytes[at..end). Throws ConnectionError. */
export function decodeHuffman(bytes: Uint8Array, at: number, end: number): string {
  let text = "";
  let node = 0;
  // Bits since the last symbol, and whether all were ones: the remainder must be a prefix of the end of string.
  let pendingBits = 0;
  let isAllOnes = true;
  for (let index = at; index < end; index += 1) {
    const byte = bytes[index] as number;
    for (let bit = 7; bit >= 0; bit -= 1) {
      const one = (byte >> bit) & 1;
      const next = nodes[node + one] as number;
      pendingBits += 1;
      if (one === 0) isAllOnes = false;
      if (next >= 0) {
        node = next;
        continue;
      }
      const symbol = -1 - next;
      if (symbol === endOfString) throw new ConnectionError(ErrorCode.COMPRESSION_ERROR, "end of string in a header");
      text += String.fromCharCode(symbol);
      node = 0;
      pendingBits = 0;
      isAllOnes = true;
    }
  }
  if (pendingBits > 7 || !isAllOnes) throw new ConnectionError(ErrorCode.COMPRESSION_ERROR, "invalid Huffman padding");
  return text;
}
