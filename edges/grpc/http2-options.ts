/** How both halves set up HTTP/2. Each number is a bound on what one connection may cost or do. */

/** A stream's receive window: a whole assignment or status report arrives without waiting for window updates. */
const streamWindowBytes = 1024 * 1024;
/** A connection's receive window, for all its streams together. */
export const connectionWindowBytes = 4 * 1024 * 1024;

const shared = {
  // In megabytes. The default of 10 refuses new streams (heartbeats among them) while one large message is queued. What
  // is queued is bounded where it is queued: by the sink (`sinkBytesMax`) and by the request size limit.
  maxSessionMemory: 1024,
  // HPACK's table for what we send: our headers are constants, so a small table holds them all.
  maxDeflateDynamicTableSize: 1024,
  // Frames for streams that were just cancelled are no attack; grpc-go cancels often.
  maxSessionInvalidFrames: 100_000,
  maxSessionRejectedStreams: 100_000,
} as const;

export const serverHttp2Options = {
  ...shared,
  settings: {
    initialWindowSize: streamWindowBytes,
    // An engine needs 5 and one for each log subscription (reference §8.1); this leaves room for any.
    maxConcurrentStreams: 4_096,
    maxHeaderListSize: 16 * 1024,
    headerTableSize: 4_096,
  },
  // Cancelling is a normal end of a stream here: an engine in trouble reopens Assignments about a thousand times within
  // seconds (reference §0.7) and must be answered, not cut off. A rapid-reset flood is far above this.
  streamResetBurst: 20_000,
  streamResetRate: 2_000,
} as const;

export const clientHttp2Options = {
  ...shared,
  settings: {
    initialWindowSize: streamWindowBytes,
    enablePush: false,
    headerTableSize: 4_096,
  },
} as const;
