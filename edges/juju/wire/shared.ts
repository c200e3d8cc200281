/**
 * A result that many clients get: its text is created once, and its bytes are sent to each of them. Only the text before it,
 * with the request id, differs by client. Together they form one text message (RFC 6455 §5.2).
 */
import { Encoded } from "../results.ts";

/** Header byte of a single text frame. */
const finalText = 0x81;
const lengthIn16Bits = 126;
const lengthIn64Bits = 127;

export class Shared extends Encoded {
  #ending: Buffer | null = null;

  /** The parts of one message: the text, the result, and the closing brace. All clients share the last part. */
  message(beginning: string): readonly [Buffer, Buffer] {
    this.#ending ??= Buffer.from(`${this.text}}`);
    return [withHeader(beginning, this.#ending.length), this.#ending];
  }
}

/** Frame header and text, if `more` bytes follow. */
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
