/** The numbers of HTTP/2 (RFC 9113), and what one connection may cost or do: each limit is named here and kept in `connection.ts`,
 * `server-connection.ts` and `client-connection.ts`. */

export const FrameType = {
  DATA: 0,
  HEADERS: 1,
  PRIORITY: 2,
  RST_STREAM: 3,
  SETTINGS: 4,
  PUSH_PROMISE: 5,
  PING: 6,
  GOAWAY: 7,
  WINDOW_UPDATE: 8,
  CONTINUATION: 9,
} as const;

export const Flag = { ACK: 0x1, END_STREAM: 0x1, END_HEADERS: 0x4, PADDED: 0x8, PRIORITY: 0x20 } as const;

export const ErrorCode = {
  NO_ERROR: 0x0,
  PROTOCOL_ERROR: 0x1,
  INTERNAL_ERROR: 0x2,
  FLOW_CONTROL_ERROR: 0x3,
  SETTINGS_TIMEOUT: 0x4,
  STREAM_CLOSED: 0x5,
  FRAME_SIZE_ERROR: 0x6,
  REFUSED_STREAM: 0x7,
  CANCEL: 0x8,
  COMPRESSION_ERROR: 0x9,
  CONNECT_ERROR: 0xa,
  ENHANCE_YOUR_CALM: 0xb,
  INADEQUATE_SECURITY: 0xc,
} as const;
export type ErrorCode = (typeof ErrorCode)[keyof typeof ErrorCode];

export const Setting = {
  HEADER_TABLE_SIZE: 0x1,
  ENABLE_PUSH: 0x2,
  MAX_CONCURRENT_STREAMS: 0x3,
  INITIAL_WINDOW_SIZE: 0x4,
  MAX_FRAME_SIZE: 0x5,
  MAX_HEADER_LIST_SIZE: 0x6,
} as const;

/** Breaks the connection: it ends with a GOAWAY of this code. */
export class ConnectionError extends Error {
  override readonly name = "ConnectionError";
  readonly code: ErrorCode;
  constructor(code: ErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

export const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");
export const frameHeaderBytes = 9;
/** The largest payload of a frame, in bytes, in both directions: HTTP/2's default, which we neither raise nor exceed. */
export const frameBytesMax = 16_384;
/** What every window is until somebody says otherwise. */
export const defaultWindowBytes = 65_535;
export const windowBytesMax = 0x7fffffff;
/** A stream's receive window: a whole assignment or status report arrives without waiting for window updates. */
export const streamWindowBytes = 1024 * 1024;
/** A connection's receive window, for all its streams together. */
export const connectionWindowBytes = 4 * 1024 * 1024;
/** An engine needs 5 streams and one for each log subscription (reference §8.1); this leaves room for any. Beyond:
 *  REFUSED_STREAM. */
export const concurrentStreamsMax = 1_000;
/** Bytes of a request's header list, counted as HPACK counts. Beyond: the stream is reset with ENHANCE_YOUR_CALM. */
export const headerListBytesMax = 16 * 1024;
/** Bytes of one header block as it is sent, and the frames it may be cut into. Beyond: GOAWAY ENHANCE_YOUR_CALM, since a
 *  block that is not decoded leaves the table useless. */
export const headerBlockBytesMax = 32 * 1024;
export const headerBlockFramesMax = 32;
/** HPACK's dynamic table for what we receive, in bytes: the protocol's default. */
export const headerTableBytesMax = 4_096;
/** Milliseconds a peer has for its preface and settings. Beyond: the connection is cut. */
export const prefaceTimeoutMs = 10_000;
/** Milliseconds a peer has to take our GOAWAY before the socket is cut. */
export const lingerMs = 1_000;
/** Bytes of acknowledgements and resets that may wait for a peer that does not read. Beyond: the connection is cut. */
export const controlBytesMax = 256 * 1024;
/** Bytes handed to the socket that it has not written; above, streams keep theirs. */
export const socketBytesMax = 256 * 1024;

/** Tokens: how many at once, and how many a second come back. Beyond: GOAWAY ENHANCE_YOUR_CALM. */
export const rates = {
  // Cancelling is a normal end of a stream here: an engine in trouble reopens Assignments about a thousand times within
  // seconds (reference §0.7) and must be answered. A rapid-reset flood is far above this.
  resets: { burst: 20_000, perSecond: 2_000 },
  // grpc-go sends one after nearly every message, to estimate its bandwidth.
  pings: { burst: 20_000, perSecond: 5_000 },
  // A peer changes its settings once, grpc-go also when its estimate of the bandwidth grows.
  settings: { burst: 200, perSecond: 20 },
  // DATA that carries nothing and ends nothing.
  emptyData: { burst: 1_000, perSecond: 100 },
} as const;
