/** A node's connection to a manager's NATS for nodes, or to its site's. It is not dialled again: its links end with it, and the node opens others. */
import { isIP } from "node:net";
import { connect, type ConnectionOptions } from "nats";
import type { Bus } from "../ports/index.ts";
import { parseAddress, showAddress, type NatsAddress } from "./address.ts";
import { authenticatorOf } from "./credentials.ts";
import { dialProblem } from "./dial-problem.ts";
import { NatsProblem, textOf } from "./errors.ts";
import { greet, type Greeting } from "./greeting.ts";
import { identifying, type NatsTls } from "./nats-tls.ts";

/** For the greeting, and again for the connection and its handshake, in milliseconds. */
const dialMs = 5_000;

interface NodeConnectionOptions {
  /** `nats://HOST:PORT` or `tls://HOST:PORT`; the connection has TLS in either case. */
  readonly url: string;
  /** `serverName` is the name that the certificate must have. */
  readonly tls: NatsTls;
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
  const { host, port } = parseAddress(url);
  const outcome = await greet(host, port, dialMs);
  return outcome.kind === "greeted" ? outcome.greeting.serverName : null;
}

/** Throws NatsProblem. */
export async function connectNode({ name, present, tls, url }: NodeConnectionOptions): Promise<NodeConnection> {
  const { address, greeting } = await greetedAt(url);
  const where = showAddress(address);
  // Everything that it is shown would be readable on the network.
  if (!greeting.tlsRequired) throw new NatsProblem("unusable", `the nats-server at ${where} has no TLS`);
  return open(where, greeting, {
    name,
    tls: identifying(tls, address),
    authenticator: (nonce) => {
      const { signature, token } = present(nonce ?? "");
      return { auth_token: token, sig: signature };
    },
  });
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
  const { address, greeting } = await greetedAt(url);
  const { host, pass, tls, token, user } = address;
  const trusted = ca === null ? {} : { ca };
  // By the name in the URL, which the library passes to Node for addresses only.
  const named = isIP(host) === 0 ? { servername: host } : {};
  return open(showAddress(address), greeting, {
    name,
    ...(tls || greeting.tlsRequired ? { tls: identifying({ ...trusted, ...named }, address) } : {}),
    ...(credentials === null ? {} : { authenticator: authenticatorOf(credentials) }),
    ...(user === undefined ? {} : { user, pass: pass ?? "" }),
    ...(token === undefined ? {} : { token }),
  });
}

async function greetedAt(url: string): Promise<{ readonly address: NatsAddress; readonly greeting: Greeting }> {
  const address = parseAddress(url);
  // A frozen server's kernel accepts, and the library would keep that socket.
  const outcome = await greet(address.host, address.port, dialMs);
  if (outcome.kind === "greeted") return { address, greeting: outcome.greeting };
  throw new NatsProblem("unreachable", `no nats-server answers at ${showAddress(address)} (${outcome.reason})`);
}

async function open(
  where: string,
  greeting: Greeting,
  options: Pick<ConnectionOptions, "name" | "tls" | "authenticator" | "user" | "pass" | "token">,
): Promise<NodeConnection> {
  const connection = await connect({
    ...options,
    servers: where,
    reconnect: false,
    ignoreClusterUpdates: true,
    noAsyncTraces: true,
    timeout: dialMs,
    // Links have their own signs of life.
    pingInterval: 86_400_000,
  }).catch((error: unknown) => {
    throw dialProblem(error, where);
  });
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
