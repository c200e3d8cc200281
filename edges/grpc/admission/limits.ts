/**
 * What a peer may use before and after it has shown who it is, on the gRPC port and on the JSON API's. Every limit stands
 * here or in `http2/protocol.ts` and `juju/wire/limits.ts`; `docs/limits.md` lists them all. Times are in milliseconds.
 *
 * A connection is *pending* until its TLS handshake is done, then *anonymous* (no valid certificate, or no login on the
 * JSON API) or *known*. The three are counted apart, so that anonymous connections never take the place of known ones.
 */

const kib = 1024;
const mib = 1024 * kib;

/** Connections whose handshake is not done, on one port. Each costs a socket and its first bytes. 8,192 leaves room for 5,000
 *  agents that reconnect at once (the largest fleet of `npm run bench`). Beyond: the oldest one of the address that has the
 *  most is closed, one that has sent nothing before one that waits for its handshake. */
export const pendingMax = 8_192;
/** The same for one address (IPv4) or /64 network (IPv6). A whole fleet may stand behind one address. */
export const pendingPerAddressMax = 7_168;
/** Bytes a peer may send before its handshake begins: a ClientHello takes 0.3 to 2 KiB. Beyond: the connection is closed. */
export const firstBytesMax = 8 * kib;
/** Handshakes under way at once, on one port: each holds some 40 KiB. Beyond: the next waits until one is done, or until the
 *  oldest is older than `handshakePatienceMs` and is closed in its favor. */
export const handshakesMax = 1_024;
export const handshakePatienceMs = 3_000;
/** Time for handshakes in one turn of the event loop. One costs the server 1.3 ms. Beyond: the next turn goes on, so that
 *  heartbeats and the lease are served in between. */
export const handshakeTurnMs = 10;

/** Anonymous connections, on one port. A thousand nodes that join at once take a thousand of them for some seconds. Beyond:
 *  the oldest of the address that has the most is closed, one that waits for an answer of ours last. */
export const anonymousMax = 2_048;
/** The same for one address. */
export const anonymousPerAddressMax = 1_536;
/** An anonymous connection is closed after this time without a complete request; a request that is being answered (a node
 *  that waits to be accepted) keeps it open. */
export const anonymousIdleMs = 20_000;
/** How often anonymous connections are checked. */
export const anonymousSweepMs = 1_000;
/** Largest request of an anonymous caller. A certificate request with its token takes 1 KiB. Beyond: RESOURCE_EXHAUSTED. */
export const anonymousMessageBytesMax = 16 * kib;
/** Bytes that all anonymous connections of the process may hold of unfinished requests. Beyond: the connection that holds
 *  the most is closed. A join holds 1 KiB for some microseconds. */
export const anonymousBytesMax = 16 * mib;
/** The part of the event loop's time that anonymous peers may use (decoding headers and JSON, starting handlers), and the
 *  time they may use at once, in milliseconds. Beyond: their connections are not read until time has come back. */
export const anonymousTimeShare = 0.25;
export const anonymousTimeBurstMs = 1_000;

/** The same for messages above 64 KiB of users of the JSON API who have logged in: reading 16 MiB of JSON takes 0.3 s. Beyond:
 *  the connection that sent it is read later. */
export const largeMessageTimeShare = 0.25;
export const largeMessageTimeBurstMs = 1_000;

/** Known connections of one node with a worker's certificate: an agent or engine has up to five, and for a moment as many
 *  more when it renews its certificate. Beyond: its oldest is closed. */
export const workerConnectionsMax = 64;
/** The same of a manager: others forward calls for many clients. */
export const managerConnectionsMax = 1_024;
/** The same of one user, by certificate: a command has one connection, and a person's scripts run some of them at once. */
export const userConnectionsMax = 64;
/** Known connections in all, on one port. Beyond: the oldest of the node that has the most is closed. */
export const knownMax = 20_000;
/** Bytes that all known connections of the process may hold of unfinished requests and of messages that no handler has taken.
 *  Beyond: the connection that holds the most is closed. */
export const knownBytesMax = 256 * mib;
/** How often requests of known callers are checked: one that has not completed a message between two checks is ended with
 *  DEADLINE_EXCEEDED. */
export const knownSweepMs = 60_000;

/** A reason is logged at most this often, with how many were refused for it since. */
export const refusalLogMs = 10_000;
