/** What one client may ask of a manager. Each limit says what happens at it. */

/** Of one message in bytes: beyond it the connection is closed with code 1009. Four times what stock clients take (reference §1.2). */
export const messageBytesMax = 16 * 1_024 * 1_024;
/** Of arrays and objects in each other: beyond it the connection is closed. Requests of stock clients have fewer than ten. */
export const depthMax = 100;
/** Requests of one connection that are being answered: then no more are read until one is (reference §5). */
export const outstandingMax = 1_000;
/** Bytes written to one client that it has not taken: then no more requests are read until it has. */
export const unsentBytesMax = 1 * 1_024 * 1_024;
/** Beyond it the connection is ended at once: answers to what was read before can be many. */
export const unsentBytesFatal = 256 * 1_024 * 1_024;
/** Connections of one manager: further ones are refused with status 503. */
export const connectionsMax = 10_000;
