/** Limits for one client of a manager, and the consequence of exceeding each. */

/**
 * Size of a message in bytes; beyond it the connection is closed with code 1009. Four times the limit of stock clients
 * (reference §1.2).
 */
export const messageBytesMax = 16 * 1_024 * 1_024;
/** Size of a message before login: a login takes some hundred bytes, or some thousand with macaroons of other servers. */
export const loginMessageBytesMax = 64 * 1_024;
/** WebSocket's close code for oversized messages (RFC 6455 §7.4.1). */
export const tooLargeCode = 1009;
/** Fragments of a message; beyond it the connection is closed with code 1008. Go's clients write fragments of 4 KiB, 4,096 for
 *  the largest message. */
export const fragmentsMax = 4_200;
/** The processing time of users' messages above this size counts towards `largeMessageTimeShare`. */
export const largeMessageBytes = 64 * 1_024;
/** Nesting of arrays and objects; beyond it the connection is closed. Requests of stock clients have fewer than ten levels. */
export const depthMax = 100;
/** Outstanding requests of a connection; reading pauses until one is answered (reference §5). */
export const outstandingMax = 1_000;
/** Unsent bytes of a client; no further requests are read until it has read them. */
export const unsentBytesMax = 1 * 1_024 * 1_024;
/** Unsent bytes beyond which the connection is cut off: the replies to requests read before can be large. */
export const unsentBytesFatal = 256 * 1_024 * 1_024;
/** Connections of a manager: a new one displaces one without a login; if all have one, it is refused with status 503. */
export const connectionsMax = 10_000;
