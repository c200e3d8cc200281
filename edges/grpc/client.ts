/** Connections over TLS, to managers (from agents and other managers) and to plugins. */
import * as net from "node:net";
import type { Duplex } from "node:stream";
import * as tls from "node:tls";
import { outsideCalls } from "../../runtime/observation/cause.ts";
import type { DuplexChannel, RpcChannel } from "../../runtime/ports/rpc.ts";
import { openChannel } from "./client-channel.ts";
import { isTrustedAfterAll } from "./cross-signed.ts";
import { keyExchangeGroups } from "./tls-options.ts";

export { connectUnix } from "./client-channel.ts";

/** A connection outlives the call that first needs it. */
const connectNet = (options: PluginEndpoint): net.Socket => outsideCalls(() => net.connect(options));
const connectTlsSocket = (options: tls.ConnectionOptions): tls.TLSSocket => outsideCalls(() => tls.connect(options));

interface SecuringOptions {
  /** Trusted roots, PEM. Absent: nothing is verified, which is acceptable only to fetch a root that a join token pins. */
  readonly rootPem?: string;
  /** The name that the manager's certificate must carry (docs/reference/swarm-worker-protocol.md §3.1). */
  readonly serverName: "swarm-ca" | "swarm-manager";
  /** Our own certificate, if any, and its key: PEM. */
  readonly certificatePem?: string;
  readonly keyPem?: string;
  /** Timeout for the TCP connection, if there is none yet, and the TLS handshake together, in milliseconds. */
  readonly timeoutMs: number;
}

interface ConnectTlsOptions extends SecuringOptions {
  readonly host: string;
  readonly port: number;
}

/** Connects and completes the handshake. Rejects with RpcError UNAVAILABLE on any failure. */
export function connectTls({ host, port, ...options }: ConnectTlsOptions): Promise<RpcChannel> {
  return secure({ host, port }, `${host}:${port}`, options);
}

/** The same over a connection that is open already. `target`: how errors name it. */
export function connectTlsOver(socket: Duplex, target: string, options: SecuringOptions): Promise<RpcChannel> {
  return secure({ socket }, target, options);
}

function secure(
  to: { readonly host: string; readonly port: number } | { readonly socket: Duplex },
  target: string,
  options: SecuringOptions,
): Promise<RpcChannel> {
  const { rootPem, serverName } = options;
  let nameError: Error | undefined;
  const socket = connectTlsSocket({
    ...to,
    servername: serverName,
    // The certificate is checked below, before anything is sent.
    rejectUnauthorized: false,
    checkServerIdentity: (name, certificate) => (nameError = tls.checkServerIdentity(name, certificate)),
    ...(rootPem === undefined ? {} : { ca: rootPem }),
    ...(options.certificatePem === undefined ? {} : { cert: options.certificatePem }),
    ...(options.keyPem === undefined ? {} : { key: options.keyPem }),
    ALPNProtocols: ["h2"],
    minVersion: "TLSv1.2",
    ecdhCurve: keyExchangeGroups,
  });
  return openChannel(
    socket,
    "secureConnect",
    target,
    { scheme: "https", authority: serverName, caller: "" },
    options.timeoutMs,
    () => {
      const isTrusted = rootPem === undefined || socket.authorized || isTrustedAfterAll(socket, rootPem, serverName);
      return isTrusted
        ? null
        : `its certificate is not trusted: ${nameError?.message ?? String(socket.authorizationError)}`;
    },
  );
}

/** Where a plugin listens: a Unix socket, or a port on this machine. */
export type PluginEndpoint = { readonly path: string } | { readonly host: string; readonly port: number };

interface ConnectPluginOptions {
  /** Timeout for the connection and the TLS handshake together, in milliseconds. */
  readonly timeoutMs: number;
  /** Maximum size of a received message, in bytes. */
  readonly messageBytesMax: number;
  /** PEM. Absent: no TLS. The peer must show exactly `peerCertificatePem`, under the name `localhost`. */
  readonly tls?: { readonly certificatePem: string; readonly keyPem: string; readonly peerCertificatePem: string };
}

/** Connects to a process on this machine. Rejects with RpcError UNAVAILABLE. */
export function connectPlugin(endpoint: PluginEndpoint, options: ConnectPluginOptions): Promise<DuplexChannel> {
  const target = "path" in endpoint ? endpoint.path : `${endpoint.host}:${endpoint.port}`;
  const { tls: secured, timeoutMs, messageBytesMax } = options;
  const requests = { scheme: secured === undefined ? "http" : "https", authority: "localhost", caller: "" };
  if (secured === undefined)
    return openChannel(connectNet(endpoint), "connect", target, requests, timeoutMs, undefined, messageBytesMax);
  const socket = connectTlsSocket({
    ...endpoint,
    servername: "localhost",
    ca: secured.peerCertificatePem,
    cert: secured.certificatePem,
    key: secured.keyPem,
    ALPNProtocols: ["h2"],
    minVersion: "TLSv1.2",
  });
  return openChannel(socket, "secureConnect", target, requests, timeoutMs, undefined, messageBytesMax);
}
