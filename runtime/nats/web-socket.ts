/** Connections to nats-servers over WebSockets with TLS, and the greeting of such a server. */
import { errors, wsconnect, type NatsConnection, type WsSocketFactory } from "@nats-io/nats-core";
import type { PeerCertificate } from "node:tls";
import { WebSocket, type ClientOptions } from "ws";
import { showAddress, type NatsAddress } from "./address.ts";
import { dialProblem } from "./dial-problem.ts";
import { NatsProblem } from "./errors.ts";
import { parseGreeting, type GreetingOutcome } from "./greeting.ts";

export type WebSocketConnection = NatsConnection;

/** Options of Node's TLS. */
export interface WebSocketTls {
  readonly ca?: string;
  /** The name that the certificate must have; default: the URL's host. */
  readonly servername?: string;
  readonly rejectUnauthorized?: boolean;
  readonly checkServerIdentity?: (name: string, certificate: PeerCertificate) => Error | undefined;
}

type Credentials = Pick<NonNullable<Parameters<typeof wsconnect>[0]>, "authenticator" | "user" | "pass" | "token">;

interface WebSocketOptions {
  readonly address: NatsAddress;
  readonly tls: WebSocketTls;
  readonly name: string;
  readonly timeoutMs: number;
  readonly pingIntervalMs: number;
  readonly credentials: Credentials;
}

function urlOf(address: NatsAddress): string {
  return `wss://${showAddress(address)}${address.webSocketPath ?? "/"}`;
}

function open(address: NatsAddress, tls: WebSocketTls, timeoutMs: number): WebSocket {
  const options: ClientOptions = {
    // The types of `ws` differ from Node's, to which it passes these.
    ...(tls as object),
    handshakeTimeout: timeoutMs,
    // Frames are small, and mostly encrypted inside.
    perMessageDeflate: false,
    followRedirects: false,
  };
  return new WebSocket(urlOf(address), options);
}

/** The first line of the server at the address, whose certificate is not verified: nothing is sent to it. */
export function greetOverWebSocket(address: NatsAddress, timeoutMs: number): Promise<GreetingOutcome> {
  return new Promise((resolve) => {
    const socket = open(address, { rejectUnauthorized: false }, timeoutMs);
    const finish = (outcome: GreetingOutcome): void => {
      clearTimeout(timer);
      socket.terminate();
      resolve(outcome);
    };
    const timer = setTimeout(() => finish({ kind: "silent", reason: `no greeting within ${timeoutMs} ms` }), timeoutMs);
    socket.on("message", (data: Buffer) => finish(parseGreeting(data.toString("utf8").trimEnd())));
    socket.on("error", (error) => finish({ kind: "silent", reason: error.message }));
    socket.on("close", () => finish({ kind: "silent", reason: "the connection was closed" }));
  });
}

/** Not dialled again when it ends. Throws NatsProblem. */
export async function connectOverWebSocket(options: WebSocketOptions): Promise<NatsConnection> {
  const { address, credentials, name, pingIntervalMs, timeoutMs, tls } = options;
  // The library keeps only the text of a socket's error.
  let failure: Error | null = null;
  const wsFactory: WsSocketFactory = () => {
    const socket = open(address, tls, timeoutMs);
    socket.on("error", (error) => (failure ??= error));
    return Promise.resolve({ socket: socket as unknown as globalThis.WebSocket, encrypted: true });
  };
  try {
    return await wsconnect({
      ...credentials,
      name,
      wsFactory,
      servers: urlOf(address),
      reconnect: false,
      ignoreClusterUpdates: true,
      noAsyncTraces: true,
      timeout: timeoutMs,
      pingInterval: pingIntervalMs,
    });
  } catch (error) {
    const where = showAddress(address);
    if (!(error instanceof errors.AuthorizationError)) throw dialProblem(failure ?? error, where);
    throw new NatsProblem("unauthorized", `the nats-server at ${where} rejected the credentials`, { cause: error });
  }
}
