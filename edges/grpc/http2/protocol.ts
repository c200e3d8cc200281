/** The constants of HTTP/2 (RFC 9113), and the limits of one connection, which `connection.ts` and `server-connection.ts`
 *  enforce. */

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
  HTTP_1_1_REQUIRED: 0xd,
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

/** Ends the connection with a GOAWAY of this code. */
export class ConnectionError extends Error {
  override readonly name = "ConnectionError";
  readonly code: ErrorCode;
  constructor(code: ErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

export function require(condition: boolean, code: ErrorCode, message: string): asserts condition {
  if (!condition) throw new ConnectionError(code, message);
}

/** Ends the connection that holds the most of a budget that many share and have exceeded. */
export class BudgetError extends ConnectionError {}

export const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");
export const frameHeaderBytes = 9;
/** Maximum payload of a frame, in bytes, in both directions: HTTP/2's default, which we neither raise nor exceed. */
export const frameBytesMax = 16_384;
/** Every window's initial size. */
export const defaultWindowBytes = 65_535;
export const windowBytesMax = 0x7fffffff;
/** Bytes of a request's header list, as HPACK counts them. Beyond: the stream is reset with ENHANCE_YOUR_CALM. */
export const headerListBytesMax = 16 * 1024;
/** Bytes of one encoded header block, and the number of frames it may be split into. Beyond: GOAWAY ENHANCE_YOUR_CALM, since
 *  the table is useless after a block that was not decoded. */
export const headerBlockBytesMax = 32 * 1024;
export const headerBlockFramesMax = 32;
/** Size of HPACK's dynamic table for received headers, in bytes: the protocol's default. */
export const headerTableBytesMax = 4_096;
/** Timeout for a peer's preface and settings, in milliseconds. Beyond: the connection is closed. */
export const prefaceTimeoutMs = 10_000;
/** Time a peer has to read our GOAWAY before the socket is closed, in milliseconds. */
export const lingerMs = 1_000;

interface Rate {
  /** Tokens available at once. */
  readonly burst: number;
  /** Tokens added per second. */
  readonly perSecond: number;
}

/** Limits of one connection. */
export interface ConnectionLimits {
  /** A stream's receive window, in bytes. It reopens when handlers take messages, not when data arrives, so it is at least as
   *  large as a message. Beyond: the stream is reset with FLOW_CONTROL_ERROR. */
  readonly streamWindowBytes: number;
  /** The receive window of all streams together, in bytes. When unfinished messages have used it up, the stream that holds
   *  the most is reset with ENHANCE_YOUR_CALM. */
  readonly connectionWindowBytes: number;
  /** Concurrent streams. Beyond: REFUSED_STREAM. */
  readonly concurrentStreamsMax: number;
  /** A stream's cost in the byte budget that connections share, in addition to the bytes it holds. */
  readonly streamCostBytes: number;
  /** Bytes of acknowledgments and resets that may wait for a peer that does not read. Beyond: the connection is closed. */
  readonly controlBytesMax: number;
  /** Bytes passed to the socket that it has not written; above this, streams keep their data. */
  readonly socketBytesMax: number;
  /** Bytes of answers on all streams together that may wait for a peer that does not read. Beyond: the stream being written
   *  to ends with RESOURCE_EXHAUSTED. One message may be larger, such as the first assignments of a full node. */
  readonly queuedBytesMax: number;
  /** Beyond any of these: GOAWAY ENHANCE_YOUR_CALM. */
  readonly rates: {
    readonly resets: Rate;
    readonly pings: Rate;
    readonly settings: Rate;
    /** DATA frames without content or END_STREAM. */
    readonly emptyData: Rate;
    /** WINDOW_UPDATE, PRIORITY and frames of unknown type. */
    readonly others: Rate;
  };
}

/** Limits of a peer with a certificate of this cluster, and of the control socket. */
export const knownLimits: ConnectionLimits = {
  // A message of 4 MiB (grpc-go's default) with its header, and the beginning of the next message.
  streamWindowBytes: 4 * 1024 * 1024 + 64 * 1024,
  connectionWindowBytes: 16 * 1024 * 1024,
  // An engine needs 5 streams and one per log subscription (reference §8.1); this allows for many.
  concurrentStreamsMax: 1_000,
  streamCostBytes: 0,
  controlBytesMax: 256 * 1024,
  socketBytesMax: 256 * 1024,
  queuedBytesMax: 128 * 1024 * 1024,
  rates: {
    // Canceling is a normal end of a stream here: a failing engine reopens Assignments about a thousand times within seconds
    // (reference §0.7) and must be answered. A rapid-reset flood is far above this.
    resets: { burst: 20_000, perSecond: 2_000 },
    // grpc-go sends one after nearly every message, to estimate its bandwidth.
    pings: { burst: 20_000, perSecond: 5_000 },
    // A peer changes its settings once; grpc-go also when its bandwidth estimate grows.
    settings: { burst: 200, perSecond: 20 },
    emptyData: { burst: 1_000, perSecond: 100 },
    // A peer that reads 100 MB/s and acknowledges each frame of 16 KiB sends 6,000.
    others: { burst: 100_000, perSecond: 20_000 },
  },
};

/** Limits of a peer without a certificate of this cluster: what a node needs to join (one small call at a time), no more. */
export const anonymousLimits: ConnectionLimits = {
  // HTTP/2's defaults: lower limits cannot bind a peer before it has read our settings.
  streamWindowBytes: defaultWindowBytes,
  connectionWindowBytes: defaultWindowBytes,
  // RFC 9113 §6.5.2 recommends at least 100; a peer may start them before it has read our settings.
  concurrentStreamsMax: 128,
  streamCostBytes: 2 * 1024,
  controlBytesMax: 16 * 1024,
  socketBytesMax: 16 * 1024,
  queuedBytesMax: 256 * 1024,
  rates: {
    resets: { burst: 100, perSecond: 10 },
    pings: { burst: 100, perSecond: 10 },
    settings: { burst: 20, perSecond: 2 },
    emptyData: { burst: 20, perSecond: 2 },
    others: { burst: 200, perSecond: 20 },
  },
};

/** Resets that a header list over its limit counts as: decoding it costs time. */
export const headerListResets = 50;
