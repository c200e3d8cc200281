/**
 * TLS on the control socket. Docker's own clients of that socket (swarmctl, dockerd) speak it there, our command does not:
 * the first byte tells which. The certificate shown is the manager's own; the client is asked for none, because whoever may
 * open the file is admitted, and nobody else.
 *
 * T1: a connection is handed on once, as soon as it has said something, and is closed with the listener before that.
 */
import type { Socket } from "node:net";
import { createServer, type SecureContextOptions, type Server } from "node:tls";

/** The content type of a TLS record with a handshake (RFC 8446 §5.1). HTTP/2 without TLS begins with "P". */
const handshakeRecord = 0x16;

export class LocalTls {
  readonly #server: Server;
  readonly #onConnection: (socket: Socket) => void;
  /** Those that have said nothing yet. */
  readonly #silent = new Set<Socket>();
  #hasCertificate = false;

  /** `options`: how to shake hands, without certificates. `onConnection` gets what speaks HTTP/2, in the clear. */
  constructor(options: { readonly handshakeTimeoutMs: number }, onConnection: (socket: Socket) => void) {
    this.#onConnection = onConnection;
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
    this.#silent.add(socket);
    const forget = (): void => void this.#silent.delete(socket);
    const giveUp = (): void => void socket.destroy();
    socket.once("close", forget).once("error", giveUp);
    // Not `data`: what was read has to go back, and a flowing stream would hand it out again before anybody listens.
    socket.once("readable", () => {
      const head = socket.read() as Buffer | null;
      if (head === null) return; // it ended, or failed: `close` follows
      socket.off("close", forget).off("error", giveUp);
      forget();
      socket.unshift(head);
      if (head[0] !== handshakeRecord) this.#onConnection(socket);
      else if (this.#hasCertificate) this.#server.emit("connection", socket);
      else socket.destroy();
    });
  }

  close(): void {
    for (const socket of this.#silent) socket.destroy();
  }
}
