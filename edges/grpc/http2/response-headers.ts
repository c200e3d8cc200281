/**
 * The header blocks we send: constants, and literals that are never indexed (RFC 7541 §6.2.2), so no table is kept.
 */
import { Status } from "../../../runtime/ports/rpc.ts";
import { encodeStatusMessage } from "../status.ts";

/** A status message is truncated to this size, in encoded bytes, so that every block fits into one frame. */
const statusMessageBytesMax = 8 * 1024;

/** A literal of up to 16 KiB, without Huffman: its length takes a 7-bit prefix and two more bytes. */
function literal(text: string): Buffer {
  const bytes = Buffer.from(text, "latin1");
  if (bytes.length < 127) return Buffer.concat([Buffer.of(bytes.length), bytes]);
  const rest = bytes.length - 127;
  return Buffer.concat([Buffer.of(127, (rest & 0x7f) | 0x80, rest >> 7), bytes]);
}

function field(name: string, value: string): Buffer {
  return Buffer.concat([Buffer.of(0), literal(name), literal(value)]);
}

/** `:status` by its index in the static table. */
const status200 = Buffer.of(0x88);

export const okHeaders: Buffer = Buffer.concat([status200, field("content-type", "application/grpc")]);

const byCode = Object.values(Status).map((code) => field("grpc-status", String(code)));

/** Details larger than this, in bytes before base64, are omitted: more than any status is worth in headers. */
const statusDetailsBytesMax = 4 * 1024;

/** The trailers of a call. `details`: an encoded google.rpc.Status. */
export function trailers(code: Status, message: string, details: Uint8Array | null = null): Buffer {
  const status = byCode[code] as Buffer;
  if (details !== null && details.length <= statusDetailsBytesMax) {
    // gRPC sends binary headers in base64 without padding.
    const text = Buffer.from(details).toString("base64").replace(/=+$/, "");
    return Buffer.concat([trailers(code, message), field("grpc-status-details-bin", text)]);
  }
  if (message === "") return status;
  // A partial escape would be read as text.
  const text = encodeStatusMessage(message)
    .slice(0, statusMessageBytesMax)
    .replace(/%[0-9A-F]?$/, "");
  return Buffer.concat([status, field("grpc-message", text)]);
}

/** The only headers of a refused call. */
export function trailersOnly(code: Status, message: string, details: Uint8Array | null = null): Buffer {
  return Buffer.concat([okHeaders, trailers(code, message, details)]);
}

/** The headers of a non-gRPC answer. */
export function httpError(status: number, fields: Readonly<Record<string, string>>): Buffer {
  const rest = Object.entries(fields).map(([name, value]) => field(name, value));
  return Buffer.concat([field(":status", String(status)), ...rest]);
}
