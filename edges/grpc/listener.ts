/**
 * Listeners: TLS for nodes and managers, a Unix socket for the CLI on this machine.
 *
 * L1: a client certificate is requested but not required: a joining node has none.
 * L2: ALPN offers h2 but does not require it: an engine stops offering it after its first certificate renewal.
 * L3: at no moment can anyone but the owner open the control socket.
 * L4: the control socket accepts TLS too; it admits nobody whom L3 does not.
 * L5: an HTTP/1 request is answered with an error that names what to use instead, with and without TLS.
 */
import { rmSync, statSync } from "node:fs";
import { connect, createServer, type Server, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { createServer as createTlsServer, type SecureContextOptions, type TLSSocket } from "node:tls";
import { constants } from "node:crypto";
import type { Admission } from "./admission/admission.ts";
import { Entrance } from "./admission/entrance.ts";
import { callerOf } from "./caller.ts";
import { carriedNow, type Carrier } from "./carried.ts";
import { LocalTls } from "./local-tls.ts";
import { writeSmall } from "./small-writes.ts";
import { keyExchangeGroups } from "./tls-options.ts";
import type { Caller } from "./roles.ts";

/** A listener's certificates and keys, PEM. */
export interface Credentials {
  /** Leaf, then intermediates. */
  readonly certificatePem: string;
  readonly keyPem: string;
  /** The trusted roots of client certificates; clients also see them as the list of acceptable issuers. */
  readonly rootPem: string;
}

/** Listening failed; the message is one sentence that says what to do. */
export class ListenError extends Error {
  override readonly name = "ListenError";
}

export interface TlsListener {
  readonly port: number;
  /** A connection that another edge has accepted; its TLS begins here. */
  accept(socket: Duplex, carrier: Carrier): void;
  /** See Entrance. */
  waitMs(): number;
  setCredentials(credentials: Credentials): void;
  close(): void;
}

export interface UnixListener {
  /** Until they are set, TLS connections are closed (L4). */
  setCredentials(credentials: Credentials): void;
  close(): void;
}

/** Timeout of a TLS handshake. An engine gives up earlier; Node's default of 2 minutes lets strangers accumulate. */
export const handshakeTimeoutMs = 10_000;
/** Idle time after which the kernel probes a TCP connection, so that the connection of a peer that lost power ends. */
const keepAliveMs = 30_000;

function secureContext(credentials: Credentials): SecureContextOptions {
  return {
    cert: credentials.certificatePem,
    key: credentials.keyPem,
    ca: credentials.rootPem,
    minVersion: "TLSv1.2",
    ecdhCurve: keyExchangeGroups,
    // Engines never resume sessions, and resuming would skip the check of a certificate that has expired since.
    secureOptions: constants.SSL_OP_NO_TICKET,
    sessionTimeout: 1,
  };
}

function explain(error: NodeJS.ErrnoException, where: string): ListenError {
  switch (error.code) {
    case "EADDRINUSE":
      return new ListenError(`${where} is in use: stop the process that uses it or choose another address`, {
        cause: error,
      });
    case "EADDRNOTAVAIL":
      return new ListenError(`${where} is not an address of this machine: choose one of its addresses`, {
        cause: error,
      });
    case "EACCES":
      return new ListenError(`no permission to listen on ${where}: run as root or choose another address`, {
        cause: error,
      });
    default:
      return new ListenError(`cannot listen on ${where}: ${error.message}`, { cause: error });
  }
}

export async function listenTls(
  options: {
    readonly host: string;
    readonly port: number;
    readonly credentials: Credentials;
    readonly admission: Admission;
  },
  onConnection: (socket: TLSSocket, caller: Caller) => void,
): Promise<TlsListener> {
  let { rootPem } = options.credentials;
  const handshakes = createTlsServer({
    ...secureContext(options.credentials),
    requestCert: true,
    rejectUnauthorized: false,
    // Rather than a list, which Node copies for each connection into its pool for small buffers: with a thousand connections,
    // three bytes each kept 18 MB alive. A client that offers no protocol is served; one that offers only others is refused.
    ALPNCallback: ({ protocols }) => (protocols.includes("h2") ? "h2" : undefined),
    handshakeTimeout: handshakeTimeoutMs,
  });
  handshakes.on("secureConnection", (socket) => {
    writeSmall(socket);
    onConnection(socket, callerOf(socket, rootPem, carriedNow()?.carrier));
  });
  const { admission } = options;
  const entrance = new Entrance(handshakes, { port: "grpc", admission, handshakeTimeoutMs, keepAliveMs });
  const { server } = entrance;
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => reject(explain(error, `${options.host}:${options.port}`)));
    server.listen({ host: options.host, port: options.port }, resolve);
  });
  const address = server.address();
  return {
    port: typeof address === "object" && address !== null ? address.port : options.port,
    accept: (socket, carrier) => entrance.accept(socket, carrier),
    waitMs: () => entrance.waitMs(),
    setCredentials: (credentials) => {
      rootPem = credentials.rootPem;
      handshakes.setSecureContext(secureContext(credentials));
    },
    close: () => entrance.close(),
  };
}

type SocketFile = "absent" | "stale" | "live" | "foreign";

/** Checks the file at `path`: absent, the socket of a process that has exited, one that answers, or another file. */
function inspectSocketFile(path: string): Promise<SocketFile> {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return Promise.resolve("absent");
  if (!stat.isSocket()) return Promise.resolve("foreign");
  return new Promise((resolve) => {
    const probe = connect({ path });
    probe.once("connect", () => {
      probe.destroy();
      resolve("live");
    });
    probe.once("error", (error: NodeJS.ErrnoException) =>
      resolve(error.code === "ECONNREFUSED" || error.code === "ENOENT" ? "stale" : "live"),
    );
  });
}

/** Binds with a umask that leaves permissions only to the owner, so that the file is never open to others (L3). */
function listenPrivately(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => reject(explain(error, path)));
    const before = process.umask(0o177);
    try {
      // A path is bound before `listen` returns; only its callback comes later.
      server.listen({ path }, resolve);
    } finally {
      process.umask(before);
    }
  });
}

/** Listens on a socket that only its owner may open (L3). Rejects with ListenError. */
export async function listenOwned(server: Server, path: string): Promise<void> {
  const found = await inspectSocketFile(path);
  if (found === "live")
    throw new ListenError(`${path} is in use by a running process: stop it or choose another data directory`);
  if (found === "foreign")
    throw new ListenError(`${path} exists and is not a socket: remove it or choose another data directory`);
  if (found === "stale") rmSync(path, { force: true });
  await listenPrivately(server, path);
}

export async function listenUnix(path: string, onConnection: (socket: Socket) => void): Promise<UnixListener> {
  const either = new LocalTls({ handshakeTimeoutMs }, onConnection);
  const server = createServer((socket) => either.accept(socket));
  await listenOwned(server, path);
  return {
    setCredentials: (credentials) => either.setContext(secureContext(credentials)),
    close: () => {
      either.close();
      // Node removes the file when the server closes.
      server.close();
    },
  };
}
