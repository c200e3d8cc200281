/** Limits of the web interface's server. `docs/limits.md` lists them. Times are in milliseconds. */

const kib = 1024;
const mib = 1024 * kib;

/** Pages that one `muster ui` serves at once: a person's windows. Beyond: 503. */
export const loopbackSocketsMax = 64;
/** TCP connections of one `muster ui`: a browser opens six for each page's files. Beyond: the connection is closed. */
export const loopbackConnectionsMax = 512;
/** Pages that a manager serves at once, of all users together. Each costs its buffers and a call for each part of the page.
 *  Beyond: 503. The pages of one user count among the user's connections (`../grpc/admission/limits.ts`). */
export const managerSocketsMax = 1_024;

/** The same of one user: a person's windows. Half of `userConnectionsMax`, so that as many are left for commands. Beyond: 503. */
export const managerUserSocketsMax = 32;
/** Bytes that all pages of the process hold: unfinished messages, requests of calls in progress and unsent answers. Beyond: the
 *  connection of the page that holds the most is closed; the page connects again. Four pages may have the longest answer at once. */
export const pagesBytesMax = 256 * mib;

/** Calls in progress of one page; it makes some ten. Beyond: the call ends with RESOURCE_EXHAUSTED. */
export const callsMax = 64;
/** Maximum size of a message from the page: the largest gRPC request (4 MiB) and its envelope. Beyond: the connection ends
 *  with close code 1009. */
export const messageBytesMax = 4 * mib + kib;
/** Bytes of the requests of a page's calls in progress. Beyond: the call ends with RESOURCE_EXHAUSTED. */
export const requestBytesMax = 16 * mib;

/** Unsent bytes above which a call waits for the page, and at which it continues: a page's feed at 1,000 steps a second takes
 *  0.2 MiB/s. */
export const waitingBytesMax = mib;
export const resumingBytes = 256 * kib;
/** Unsent bytes with which another message of a call that does not wait ends it, with RESOURCE_EXHAUSTED: one answer may have
 *  64 MiB (a list of a large cluster). */
export const unsentBytesMax = 64 * mib;
/** Interval of checks. Between two of them a page must take some bytes of what is unsent, at least `pieceBytesMax` of
 *  `../juju/pieces.ts`; if nothing is, it gets a ping and must send a pong: browsers do so in the background, also when a page's
 *  script is busy. Otherwise it is cut off. */
export const checkMs = 15_000;

/** Time to send a request's headers, and for the WebSocket's handshake. Beyond: the connection is closed. */
export const headersTimeoutMs = 10_000;
/** Time of an idle connection between requests. */
export const idleTimeoutMs = 5_000;
/** Time for a page to answer a close frame. Beyond: the connection is closed. */
export const closeTimeoutMs = 5_000;
/** Time for pages to receive the close frame when the server stops. */
export const closeGraceMs = 1_000;

/** Lifetime of a login at a manager's page, as of a user's certificate: a working day. */
export const sessionMs = 12 * 3_600_000;

/** Limits of the time line of a running cluster. */
export const timelineLimits = {
  /** Memory of the index, in bytes: some half a million steps. Beyond: the oldest steps are dropped. */
  indexBytesMax: 64 * mib,
  /** Age of the oldest steps that are read: more than the processes' rings hold. */
  recentMs: 3_600_000,
  /** Bytes of what all processes have kept, and of live messages that wait meanwhile. Beyond: the rest is not read. */
  recentBytesMax: 64 * mib,
  /**
   * The kept steps are read when no further process has begun its live feed for the first of these times, or after the second at the
   * latest: agents answer within tenths of a second.
   */
  beginQuietMs: 500,
  beginMsMax: 2_000,
  /** Time for which steps wait for earlier ones of other processes: feeds are sent several times a second. */
  holdMs: 1_000,
  /** Time for which a question about steps that the page has seen waits for them. Beyond: it is answered without them. */
  seenMsMax: 3_000,
  /** Time for which the index is kept after the last page has gone: a page may be loaded again. */
  lingerMs: 30_000,
} as const;
