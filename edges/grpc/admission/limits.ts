/**
 * Limits of a peer before and after it has authenticated, on the gRPC port and the JSON API's. Every limit is defined here
 * or in `http2/protocol.ts` and `juju/wire/limits.ts`; `docs/limits.md` lists them all. Times are in milliseconds.
 *
 * A connection is *pending* until its TLS handshake completes, then *anonymous* (no valid certificate, or no login on the
 * JSON API) or *known*. The three are counted separately, so that anonymous connections never take the place of known ones.
 */

const kib = 1024;
const mib = 1024 * kib;

/** Connections with an incomplete handshake, per port. Each costs a socket and its first bytes. 8,192 leaves space for 5,000
 *  agents that reconnect at once (the largest fleet of `npm run bench`). Beyond: of the address with the most connections,
 *  the oldest is closed, and one that has sent nothing before one that waits for its handshake. */
export const pendingMax = 8_192;
/** The same per address (IPv4) or /64 network (IPv6). A whole fleet may share one address. */
export const pendingPerAddressMax = 7_168;
/** Bytes a peer may send before its handshake starts: a ClientHello takes 0.3 to 2 KiB. Beyond: the connection is closed. */
export const firstBytesMax = 8 * kib;
/** Concurrent handshakes per port: each takes some 40 KiB. Beyond: the next one waits until another completes, or until the
 *  oldest has lasted longer than `handshakePatienceMs` and is closed in its favor. */
export const handshakesMax = 1_024;
export const handshakePatienceMs = 3_000;
/** Time for handshakes per turn of the event loop. A handshake costs the server 1.3 ms. Beyond: the rest wait for the next
 *  turn, so that heartbeats and the lease are served in between. */
export const handshakeTurnMs = 10;

/** Anonymous connections per port. A thousand nodes that join at once take a thousand of them for some seconds. Beyond: of
 *  the address with the most connections, the oldest is closed; those that wait for our answer come last. */
export const anonymousMax = 2_048;
/** The same per address. */
export const anonymousPerAddressMax = 1_536;
/** An anonymous connection is closed after this time without a complete request. A request in progress (a node that waits
 *  for its acceptance) keeps the connection open. */
export const anonymousIdleMs = 20_000;
/** How often anonymous connections are checked. */
export const anonymousSweepMs = 1_000;
/** Maximum size of an anonymous request. A certificate request with its token takes 1 KiB. Beyond: RESOURCE_EXHAUSTED. */
export const anonymousMessageBytesMax = 16 * kib;
/** Bytes of unfinished requests that all anonymous connections of the process may hold. Beyond: the connection that holds
 *  the most is closed. A join holds 1 KiB for some microseconds. */
export const anonymousBytesMax = 16 * mib;
/** The share of the event loop's time that anonymous peers may use (decoding headers and JSON, starting handlers), and the
 *  burst allowed, in milliseconds. Beyond: their connections are not read until their share has recovered. */
export const anonymousTimeShare = 0.25;
export const anonymousTimeBurstMs = 1_000;

/** The same for messages above 64 KiB from logged-in users of the JSON API: parsing 16 MiB of JSON takes 0.3 s. Beyond: the
 *  connection that sent it is read later. */
export const largeMessageTimeShare = 0.25;
export const largeMessageTimeBurstMs = 1_000;

/** Time for handlers of streams of assignments, registrations and reads per turn of the event loop. Beyond: the rest wait for the
 *  next turn, in that order, so that heartbeats and reports are handled in between. */
export const callTurnMs = 10;
/** Calls of each of these classes that may wait: a whole fleet registers at once. Beyond: UNAVAILABLE. */
export const waitingCallsMax = 10_000;

/** Known connections per node with a worker's certificate. An agent or engine has up to five, and briefly twice as many
 *  while it renews its certificate. Beyond: its oldest is closed. */
export const workerConnectionsMax = 64;
/** The same per manager: other managers forward the calls of many clients. */
export const managerConnectionsMax = 1_024;
/** The same per user, by certificate: a command has one connection, and a person's scripts run several at once. */
export const userConnectionsMax = 64;
/** Known connections per port. Beyond: the oldest connection of the node that has the most is closed. */
export const knownMax = 20_000;
/** Bytes of unfinished requests, and of messages that no handler has taken, that all known connections of the process may
 *  hold. Beyond: the connection that holds the most is closed. */
export const knownBytesMax = 256 * mib;
/** Interval at which requests of known callers are checked: one that has completed no message between two checks ends with
 *  DEADLINE_EXCEEDED. */
export const knownSweepMs = 60_000;

/** Each reason is logged at most once in this time, with the number of refusals since the last. */
export const refusalLogMs = 10_000;
