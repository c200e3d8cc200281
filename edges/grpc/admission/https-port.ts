/**
 * A TLS port for HTTP/1.1 and WebSockets: of the JSON API, and of the web interface.
 *
 * Stages of a connection: those of the entrance → a stranger's, for requests → a WebSocket, whose owner limits it.
 *
 * HP1: the time for a request, its headers and the idle time between requests are limited.
 */
import { createServer, type Server } from "node:https";
import type { Duplex } from "node:stream";
import type { SecureContextOptions, TLSSocket } from "node:tls";
import { ListenError } from "../listener.ts";
import type { Admission } from "./admission.ts";
import { Entrance } from "./entrance.ts";
import type { HttpStrangers } from "./http-strangers.ts";
import type { Port } from "./refusals.ts";

interface HttpsPortOptions {
  readonly host: string;
  /** 0 chooses a free port. */
  readonly port: number;
  /** For errors, such as `the JSON API`. */
  readonly name: string;
  /** The flag with which an operator chooses another port, for errors. */
  readonly flag: string;
  readonly label: Port;
  readonly context: SecureContextOptions;
  /** Request a certificate from clients; those without one may connect, too. */
  readonly requestCert?: boolean;
  readonly admission: Admission;
  readonly strangers: HttpStrangers;
  /** Time for the handshake, for the headers of a request, and for a whole request, in milliseconds. */
  readonly requestTimeoutMs: number;
  /** Time of an idle connection between requests, in milliseconds. */
  readonly idleTimeoutMs: number;
}

export interface HttpsPort {
  /** Emits `request` and `upgrade`. */
  readonly server: Pick<Server, "on">;
  /** Resolves with the port. Rejects with ListenError. */
  listen(): Promise<number>;
  setContext(context: SecureContextOptions): void;
  /** Stops accepting; connections stay. */
  close(): void;
  /** Ends all connections but WebSockets. */
  closeAllConnections(): void;
}

/** Idle time after which the kernel probes the peer, in milliseconds. */
const keepAliveMs = 30_000;
/** Interval between checks for requests that arrive too slowly, in milliseconds. */
const requestsCheckMs = 2_000;

export function createHttpsPort(options: HttpsPortOptions): HttpsPort {
  const { host, port, name, flag, label, context, requestCert = false, admission, strangers } = options;
  const { requestTimeoutMs, idleTimeoutMs } = options;
  const server = createServer({
    ...context,
    requestCert,
    rejectUnauthorized: false,
    handshakeTimeout: requestTimeoutMs,
    // Not a list: each socket keeps a copy of it, and with the copy the 64 KiB that Node cut it from.
    ALPNCallback: ({ protocols }) => (protocols.includes("http/1.1") ? "http/1.1" : undefined),
    headersTimeout: requestTimeoutMs,
    requestTimeout: requestTimeoutMs,
    keepAliveTimeout: idleTimeoutMs,
    connectionsCheckingInterval: requestsCheckMs,
  });
  const entrance = new Entrance(server, { port: label, admission, handshakeTimeoutMs: requestTimeoutMs, keepAliveMs });
  let isClosing = false;
  server.on("clientError", (_error, socket) => socket.destroy());
  server.on("secureConnection", (socket: TLSSocket) => {
    if (isClosing) socket.destroy();
    else strangers.add(socket);
  });
  server.on("upgrade", (_request, socket: Duplex) => strangers.upgraded(socket));
  return {
    server,
    async listen() {
      await new Promise<void>((resolve, reject) => {
        entrance.server.once("error", (error: NodeJS.ErrnoException) => {
          const how =
            error.code === "EADDRINUSE"
              ? `stop the process that uses the port, or choose another with ${flag}`
              : error.message;
          reject(new ListenError(`${name} cannot listen on ${host}:${port}: ${how}`, { cause: error }));
        });
        entrance.server.listen({ host, port }, resolve);
      });
      // HP1: Node checks its time limits, and knows its connections, from this event on; the entrance's server listens here.
      server.emit("listening");
      const address = entrance.server.address();
      return typeof address === "object" && address !== null ? address.port : port;
    },
    setContext: (next) => server.setSecureContext(next),
    close() {
      isClosing = true;
      entrance.close();
      server.close();
    },
    closeAllConnections: () => server.closeAllConnections(),
  };
}

/** Ends a connection whose upgrade is refused. `answer`: bytes of HTTP/1.1. */
export function refuseUpgrade(socket: Duplex, answer: string): void {
  socket.on("error", () => undefined);
  // Otherwise it would wait for the other side, which no time limit covers after an upgrade.
  socket.once("finish", () => socket.destroy());
  socket.end(answer);
}
