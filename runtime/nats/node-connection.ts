/** A node's connection to a manager's NATS for nodes, or to its site's. It is not dialled again: its links end with it, and the node opens others. */
import { isIP } from "node:net";
import { connect, type ConnectionOptions, type NatsConnection } from "nats";
import type { Bus } from "../ports/index.ts";
import { parseNodeAddress, showAddress, type NatsAddress } from "./address.ts";
import { authenticatorOf } from "./credentials.ts";
import { dialProblem } from "./dial-problem.ts";
import { NatsProblem, textOf } from "./errors.ts";
import { greet, type Greeting, type GreetingOutcome } from "./greeting.ts";
import { identifying, type NatsTls } from "./nats-tls.ts";
import type { WebSocketConnection, WebSocketTls } from "./web-socket.ts";

/** For the greeting, and again for the connection and its handshake, in milliseconds. */
const dialMs = 5_000;
/** Links have their own signs of life: a library's pings are not needed, but cannot be switched off. In milliseconds. */
const pingIntervalMs = 86_400_000;

interface NodeConnectionOptions {
  /** `nats://HOST:PORT`, `tls://HOST:PORT` or `wss://HOST:PORT`; the connection has TLS in each case. */
  readonly url: string;
  /** `serverName` and `servername` are the name that the certificate must have. */
  readonly tls: NatsTls & WebSocketTls;
  /** The fields of the CONNECT for a server's nonce. */
  readonly present: (nonce: string) => { readonly token: string; readonly signature: string };
  readonly name: string;
}

export interface NodeConnection {
  readonly bus: Pick<Bus, "publish" | "subscribe">;
  /** In bytes. */
  readonly maxPayload: number;
  /** Id of the manager whose server it is, as the server says. */
  readonly managerId: string;
  close(): void;
  /** Calls the listener when the connection ends, in whatever way. */
  onClosed(listener: (reason: string) => void): void;
}

/** The id of the manager whose server answers at the URL, as the server says; null if none answers. Throws NatsProblem. */
export async function managerAt(url: string): Promise<string | null> {
  const { outcome } = await greetAt(url);
  return outcome.kind === "greeted" ? outcome.greeting.serverName : null;
}

/** Throws NatsProblem. */
export async function connectNode({ name, present, tls, url }: NodeConnectionOptions): Promise<NodeConnection> {
  const server = await greetedAt(url);
  // Everything that it is shown would be readable on the network.
  if (!server.isEncrypted)
    throw new NatsProblem("unusable", `the nats-server at ${showAddress(server.address)} has no TLS`);
  const authenticator = (nonce?: string) => {
    const { signature, token } = present(nonce ?? "");
    return { auth_token: token, sig: signature };
  };
  return server.open({ name, tls, credentials: { authenticator } });
}

interface SiteConnectionOptions {
  /** With user and password, or a token, if the server wants them. TLS is used with `tls://`, and if the server requires it. */
  readonly url: string;
  /** PEM; null: the system's CAs. */
  readonly ca: string | null;
  /** Contents of a file for `authenticatorOf`. */
  readonly credentials: string | null;
  readonly name: string;
}

/** A connection to the NATS of a node's site, which somebody else operates. Throws NatsProblem. */
export async function connectSite({ ca, credentials, name, url }: SiteConnectionOptions): Promise<NodeConnection> {
  const server = await greetedAt(url);
  const { host, pass, tls, token, user } = server.address;
  const trusted = ca === null ? {} : { ca };
  // By the name in the URL, which the library passes to Node for addresses only.
  const named = isIP(host) === 0 ? { servername: host } : {};
  return server.open({
    name,
    tls: tls || server.isEncrypted ? { ...trusted, ...named } : null,
    credentials: {
      ...(credentials === null ? {} : { authenticator: authenticatorOf(credentials) }),
      ...(user === undefined ? {} : { user, pass: pass ?? "" }),
      ...(token === undefined ? {} : { token }),
    },
  });
}

interface Opening {
  readonly name: string;
  /** Null: without TLS. */
  readonly tls: (NatsTls & WebSocketTls) | null;
  readonly credentials: Pick<ConnectionOptions, "authenticator" | "user" | "pass" | "token">;
}

/** The two ways to a server. */
interface Transport {
  /** Whatever the server's greeting says. */
  readonly isEncrypted: boolean;
  greet(): Promise<GreetingOutcome>;
  open(opening: Opening): Promise<NatsConnection | WebSocketConnection>;
}

async function transportTo(address: NatsAddress): Promise<Transport> {
  if (address.webSocketPath === undefined)
    return {
      isEncrypted: false,
      greet: () => greet(address.host, address.port, dialMs),
      open: (opening) => open(address, opening),
    };
  // Loaded only here: most nodes need none of its libraries.
  const { connectOverWebSocket, greetOverWebSocket } = await import("./web-socket.ts");
  return {
    isEncrypted: true,
    greet: () => greetOverWebSocket(address, dialMs),
    open: ({ tls, ...rest }) =>
      connectOverWebSocket({ ...rest, tls: tls ?? {}, address, timeoutMs: dialMs, pingIntervalMs }),
  };
}

async function greetAt(url: string) {
  const address = parseNodeAddress(url);
  const transport = await transportTo(address);
  return { address, transport, outcome: await transport.greet() };
}

async function greetedAt(url: string) {
  // A frozen server's kernel accepts, and the library would keep that socket.
  const { address, outcome, transport } = await greetAt(url);
  if (outcome.kind !== "greeted")
    throw new NatsProblem("unreachable", `no nats-server answers at ${showAddress(address)} (${outcome.reason})`);
  const { greeting } = outcome;
  return {
    address,
    isEncrypted: transport.isEncrypted || greeting.tlsRequired,
    open: async (opening: Opening) => carry(await transport.open(opening), greeting),
  };
}

async function open(address: NatsAddress, { credentials, name, tls }: Opening): Promise<NatsConnection> {
  const where = showAddress(address);
  try {
    return await connect({
      ...credentials,
      name,
      ...(tls === null ? {} : { tls: identifying(tls, address) }),
      servers: where,
      reconnect: false,
      ignoreClusterUpdates: true,
      noAsyncTraces: true,
      timeout: dialMs,
      pingInterval: pingIntervalMs,
    });
  } catch (error) {
    throw dialProblem(error, where);
  }
}

function carry(connection: NatsConnection | WebSocketConnection, greeting: Greeting): NodeConnection {
  const listeners: ((reason: string) => void)[] = [];
  void connection.closed().then((error) => {
    const reason = error instanceof Error ? textOf(error) : "closed by the server";
    for (const listener of listeners) listener(`the connection to NATS has ended: ${reason}`);
  });
  return {
    bus: {
      publish: (subject, data) => {
        // Its links learn of the end by `onClosed`.
        if (!connection.isClosed()) connection.publish(subject, data);
      },
      subscribe: (pattern, handler) => {
        if (connection.isClosed()) return { unsubscribe: () => undefined };
        const subscription = connection.subscribe(pattern, {
          callback: (error, { data, subject }) => {
            if (error === null) handler({ subject, data, headers: {}, respond: () => undefined });
          },
        });
        return { unsubscribe: () => subscription.unsubscribe() };
      },
    },
    maxPayload: connection.info?.max_payload ?? greeting.maxPayload,
    managerId: connection.info?.server_name ?? greeting.serverName,
    close: () => void connection.close().catch(() => undefined),
    onClosed: (listener) => listeners.push(listener),
  };
}
