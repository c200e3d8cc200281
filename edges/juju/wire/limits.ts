/** What one client may ask of a manager. Each limit says what happens at it. */

/** Of one message in bytes: beyond it the connection is closed with code 1009. Four times what stock clients take (reference §1.2). */
export const messageBytesMax = 16 * 1_024 * 1_024;
/** The same before login: a login takes some hundred bytes, with a macaroon of other servers some thousand. */
export const loginMessageBytesMax = 64 * 1_024;
/** WebSocket's code for it (RFC 6455 §7.4.1). */
export const tooLargeCode = 1009;
/** Fragments of one message: beyond it the connection is closed with code 1008. Go's clients write fragments of 4 KiB, of which
 *  the largest message has 4,096. */
export const fragmentsMax = 4_200;
/** The time that users' messages above this size take counts for the share of `largeMessageTimeShare`. */
export const largeMessageBytes = 64 * 1_024;
/** Of arrays and objects in each other: beyond it the connection is closed. Requests of stock clients have fewer than ten. */
export const depthMax = 100;
/** Requests of one connection that are being answered: then no more are read until one is (reference §5). */
export const outstandingMax = 1_000;
/** Bytes written to one client that it has not taken: then no more requests are read until it has. */
export const unsentBytesMax = 1 * 1_024 * 1_024;
/** Beyond it the connection is ended at once: answers to what was read before can be many. */
export const unsentBytesFatal = 256 * 1_024 * 1_024;
/** Connections of one manager: a further one takes the place of one that has not logged in; where all have, it is refused with
 *  status 503. */
export const connectionsMax = 10_000;
