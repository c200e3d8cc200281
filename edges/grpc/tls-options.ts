/** What both halves agree on in a TLS handshake. */

/**
 * The key exchanges, all of which every engine offers. OpenSSL 3.5 would begin with the hybrid X25519MLKEM768, which
 * makes a handshake dearer by 1.0 ms for both halves together (3.6 ms, and 2.6 ms without; measured on loopback with
 * client certificates). A thousand nodes that join shake hands three thousand times.
 */
export const keyExchangeGroups = "X25519:P-256:P-384";
