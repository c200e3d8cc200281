import {
  FrameType,
  Setting,
  defaultWindowBytes,
  frameHeaderBytes,
  headerListBytesMax,
  type ConnectionLimits,
  type ErrorCode,
} from "./protocol.ts";

/** Writes a frame header at `at`; returns the offset of its payload. */
export function writeFrameHeader(
  bytes: Buffer,
  at: number,
  length: number,
  type: number,
  flags: number,
  streamId: number,
): number {
  bytes[at] = length >> 16;
  bytes[at + 1] = length >> 8;
  bytes[at + 2] = length;
  bytes[at + 3] = type;
  bytes[at + 4] = flags;
  bytes[at + 5] = streamId >> 24;
  bytes[at + 6] = streamId >> 16;
  bytes[at + 7] = streamId >> 8;
  bytes[at + 8] = streamId;
  return at + frameHeaderBytes;
}

export function controlFrame(type: number, flags: number, streamId: number, payload: Uint8Array): Buffer {
  const bytes = Buffer.allocUnsafe(frameHeaderBytes + payload.length);
  bytes.set(payload, writeFrameHeader(bytes, 0, payload.length, type, flags, streamId));
  return bytes;
}

/** A frame whose payload is one 32-bit number: RST_STREAM and WINDOW_UPDATE. */
export function numberFrame(type: number, streamId: number, value: number): Buffer {
  const bytes = Buffer.allocUnsafe(frameHeaderBytes + 4);
  bytes.writeUInt32BE(value, writeFrameHeader(bytes, 0, 4, type, 0, streamId));
  return bytes;
}

export function goAwayFrame(lastStreamId: number, code: ErrorCode): Buffer {
  const payload = Buffer.alloc(8);
  payload.writeUInt32BE(lastStreamId, 0);
  payload.writeUInt32BE(code, 4);
  return controlFrame(FrameType.GOAWAY, 0, 0, payload);
}

function settings(pairs: readonly (readonly [number, number])[]): Buffer {
  const payload = Buffer.alloc(pairs.length * 6);
  pairs.forEach(([id, value], at) => {
    payload.writeUInt16BE(id, at * 6);
    payload.writeUInt32BE(value, at * 6 + 2);
  });
  return controlFrame(FrameType.SETTINGS, 0, 0, payload);
}

/** A server's first frames: its settings and its receive window. */
export function serverGreeting(limits: ConnectionLimits): Buffer {
  const more = limits.connectionWindowBytes - defaultWindowBytes;
  return Buffer.concat([
    settings([
      [Setting.MAX_CONCURRENT_STREAMS, limits.concurrentStreamsMax],
      [Setting.INITIAL_WINDOW_SIZE, limits.streamWindowBytes],
      [Setting.MAX_HEADER_LIST_SIZE, headerListBytesMax],
    ]),
    ...(more > 0 ? [numberFrame(FrameType.WINDOW_UPDATE, 0, more)] : []),
  ]);
}

export const settingsAck: Buffer = controlFrame(FrameType.SETTINGS, 1, 0, Buffer.alloc(0));
