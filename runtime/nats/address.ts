/** Addresses of nats-servers as an operator writes them: `nats://user:pass@host:port`, `tls://host`, `host:port`, and for nodes also `wss://host`. */
import { NatsProblem } from "./errors.ts";

export interface NatsAddress {
  readonly host: string;
  readonly port: number;
  readonly tls: boolean;
  readonly user?: string;
  readonly pass?: string;
  /** A user without a password is a token, as in NATS's own tools. */
  readonly token?: string;
  /** Path of the URL of a WebSocket with TLS (`wss://`). */
  readonly webSocketPath?: string;
}

/** The port that nats-server documents as its default. */
const defaultPort = 4222;
/** For `wss://`. */
const webSocketPort = 443;

/** Throws NatsProblem `unusable` for text that is not an address. */
export function parseAddress(text: string): NatsAddress {
  return parse(text, ["nats:", "tls:"]);
}

/** The address of a server for nodes, which may serve them over WebSockets. Throws NatsProblem `unusable`. */
export function parseNodeAddress(text: string): NatsAddress {
  return parse(text, ["nats:", "tls:", "wss:"]);
}

function parse(text: string, schemes: readonly string[]): NatsAddress {
  const withScheme = text.includes("://") ? text : `nats://${text}`;
  const url = URL.canParse(withScheme) ? new URL(withScheme) : null;
  if (url === null || url.hostname === "" || !schemes.includes(url.protocol)) {
    const expected = schemes.map((scheme) => `${scheme}//HOST:PORT`).join(" or ");
    throw new NatsProblem("unusable", `invalid address of a nats-server "${text}": expected ${expected}`);
  }
  const isWebSocket = url.protocol === "wss:";
  const user = decodeURIComponent(url.username);
  const pass = decodeURIComponent(url.password);
  return {
    host: url.hostname.replace(/^\[(.*)\]$/, "$1"),
    port: url.port === "" ? (isWebSocket ? webSocketPort : defaultPort) : Number(url.port),
    tls: url.protocol !== "nats:",
    ...(isWebSocket ? { webSocketPath: url.pathname } : {}),
    ...(user === "" ? {} : pass === "" ? { token: user } : { user, pass }),
  };
}

/** Whether the address is on this machine. Names other than localhost may resolve to anything. */
export function isLoopback({ host }: Pick<NatsAddress, "host">): boolean {
  return host === "localhost" || host === "::1" || /^127(\.\d{1,3}){3}$/.test(host);
}

/** Without credentials: for logs and errors. */
export function showAddress(address: NatsAddress): string {
  return address.host.includes(":") ? `[${address.host}]:${address.port}` : `${address.host}:${address.port}`;
}
