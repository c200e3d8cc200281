/** TLS options of both halves. */

/**
 * Key exchange groups, all of which every engine offers. OpenSSL 3.5 would start with the hybrid X25519MLKEM768, which costs
 * 1.0 ms more per handshake for both halves together (3.6 ms instead of 2.6 ms; measured on loopback with client
 * certificates). A thousand nodes that join make three thousand handshakes.
 */
export const keyExchangeGroups = "X25519:P-256:P-384";
