/** Output of two streams on one connection: each piece follows a header of 8 bytes with its stream and its length. */
import { isOlder } from "./api-version.ts";

/** Numbers of the streams. */
export const stdout = 1;
export const stderr = 2;

export function frameHeader(stream: typeof stdout | typeof stderr, length: number): Buffer {
  const header = Buffer.alloc(8);
  header[0] = stream;
  header.writeUInt32BE(length, 4);
  return header;
}

/** `isRaw`: one stream without frames, that of a terminal. */
export function streamType(version: string, isRaw: boolean): string {
  return isRaw || isOlder(version, "1.42")
    ? "application/vnd.docker.raw-stream"
    : "application/vnd.docker.multiplexed-stream";
}
