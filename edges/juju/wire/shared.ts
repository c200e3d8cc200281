/**
 * What many clients are told: its text is made once, and its bytes, which are sent to each as they are. Only what stands in
 * front of it, with the number of the request, is a client's own. Together they are one text message (RFC 6455 §5.2).
 */
import { Encoded } from "../results.ts";

/** The message's only frame, of text. */
const finalText = 0x81;
const lengthIn16Bits = 126;
const lengthIn64Bits = 127;

export class Shared extends Encoded {
  #ending: Buffer | null = null;

  /** The parts of one message: that text, the result, and the brace that closes both. The last part is everybody's. */
  message(beginning: string): readonly [Buffer, Buffer] {
    this.#ending ??= Buffer.from(`${this.text}}`);
    return [withHeader(beginning, this.#ending.length), this.#ending];
  }
}

/** The header and that text, where so many bytes more follow. */
function withHeader(text: string, more: number): Buffer {
  const textBytes = Buffer.byteLength(text);
  const length = textBytes + more;
  const headerBytes = length < lengthIn16Bits ? 2 : length < 65_536 ? 4 : 10;
  const part = Buffer.allocUnsafe(headerBytes + textBytes);
  part[0] = finalText;
  if (headerBytes === 2) {
    part[1] = length;
  } else if (headerBytes === 4) {
    part[1] = lengthIn16Bits;
    part.writeUInt16BE(length, 2);
  } else {
    part[1] = lengthIn64Bits;
    part.writeBigUInt64BE(BigInt(length), 2);
  }
  part.write(text, headerBytes);
  return part;
}
