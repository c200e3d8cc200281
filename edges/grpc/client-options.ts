/** How the client half sets up Node's HTTP/2. Each number is a bound on what one connection may cost or do. */

/** A stream's receive window: a whole assignment arrives without waiting for window updates. */
const streamWindowBytes = 1024 * 1024;
/** A connection's receive window, for all its streams together. */
export const connectionWindowBytes = 4 * 1024 * 1024;

export const clientHttp2Options = {
  // In megabytes. The default of 10 refuses new streams (heartbeats among them) while one large message is queued. What
  // is queued is bounded where it is queued, by the request size limit.
  maxSessionMemory: 1024,
  // HPACK's table for what we send: our headers are constants, so a small table holds them all.
  maxDeflateDynamicTableSize: 1024,
  // Frames for streams that were just cancelled are no attack.
  maxSessionInvalidFrames: 100_000,
  maxSessionRejectedStreams: 100_000,
  settings: {
    initialWindowSize: streamWindowBytes,
    enablePush: false,
    headerTableSize: 4_096,
  },
} as const;
