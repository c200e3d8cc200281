/**
 * TLS on the control socket. Docker's own clients of this socket (swarmctl, dockerd) use TLS, our command does not; the first
 * byte tells them apart. The server shows the manager's certificate and requests none from the client, since anybody who can
 * open the file is admitted.
 */
import type { Socket } from "node:net";
import { createServer, type SecureContextOptions, type Server } from "node:tls";
import { FirstBytes } from "./first-bytes.ts";

/** The content type of a TLS handshake record (RFC 8446 §5.1). HTTP/2 without TLS starts with "P". */
const handshakeRecord = 0x16;

export class LocalTls {
  readonly #server: Server;
  readonly #firstBytes: FirstBytes<Socket>;
  #hasCertificate = false;

  /** `options`: handshake options, without certificates. `onConnection` gets the decrypted HTTP/2 connection. */
  constructor(options: { readonly handshakeTimeoutMs: number }, onConnection: (socket: Socket) => void) {
    this.#firstBytes = new FirstBytes(options.handshakeTimeoutMs, (socket, head) => {
      if (head[0] !== handshakeRecord) onConnection(socket);
      else if (this.#hasCertificate) this.#server.emit("connection", socket);
      else socket.destroy();
    });
    this.#server = createServer({
      requestCert: false,
      ALPNCallback: ({ protocols }) => (protocols.includes("h2") ? "h2" : undefined),
      handshakeTimeout: options.handshakeTimeoutMs,
    });
    this.#server.on("secureConnection", onConnection);
    this.#server.on("tlsClientError", (_error, socket) => socket.destroy());
  }

  setContext(context: SecureContextOptions): void {
    this.#server.setSecureContext(context);
    this.#hasCertificate = true;
  }

  accept(socket: Socket): void {
    this.#firstBytes.await(socket);
  }

  close(): void {
    this.#firstBytes.close();
  }
}
