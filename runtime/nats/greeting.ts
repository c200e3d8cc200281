/**
 * A nats-server's greeting on a new connection. Reading it on a separate connection distinguishes a working server from a
 * frozen one, whose kernel still accepts: the library's dial would keep that socket forever.
 */
import { connect } from "node:net";
import { textOf } from "./errors.ts";

export interface Greeting {
  readonly version: string;
  readonly serverName: string;
  /** Maximum size of a message's headers and payload, in bytes. */
  readonly maxPayload: number;
  readonly jetstream: boolean;
  readonly tlsRequired: boolean;
  /** Clients need credentials, or a certificate from the server's CA. */
  readonly authRequired: boolean;
  /** Name of its cluster; empty for a standalone server. */
  readonly cluster: string;
}

export type GreetingOutcome =
  | { readonly kind: "greeted"; readonly greeting: Greeting }
  | { readonly kind: "silent"; readonly reason: string };

/** The INFO line of a large cluster lists its servers' addresses; a line longer than this is not from a nats-server. */
const lineBytesMax = 64 * 1024;

export function greet(host: string, port: number, timeoutMs: number): Promise<GreetingOutcome> {
  return new Promise((resolve) => {
    let received = "";
    const socket = connect({ host, port });
    const finish = (outcome: GreetingOutcome): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(outcome);
    };
    const timer = setTimeout(() => finish({ kind: "silent", reason: `no greeting within ${timeoutMs} ms` }), timeoutMs);
    socket.setEncoding("utf8");
    socket.on("data", (text: string) => {
      received += text;
      const end = received.indexOf("\r\n");
      if (end >= 0) finish(parseGreeting(received.slice(0, end)));
      else if (received.length > lineBytesMax)
        finish({ kind: "silent", reason: "the server there is not a nats-server" });
    });
    socket.on("error", (error) => finish({ kind: "silent", reason: textOf(error) }));
    socket.on("close", () => finish({ kind: "silent", reason: "the connection was closed" }));
  });
}

/** Exported for tests. */
export function parseGreeting(line: string): GreetingOutcome {
  const notNats: GreetingOutcome = { kind: "silent", reason: "the server there is not a nats-server" };
  if (!line.startsWith("INFO ")) return notNats;
  let info: unknown;
  try {
    info = JSON.parse(line.slice("INFO ".length));
  } catch {
    return notNats;
  }
  if (typeof info !== "object" || info === null) return notNats;
  const { version, server_name: serverName, max_payload: maxPayload, ...rest } = info as Record<string, unknown>;
  if (typeof version !== "string" || typeof maxPayload !== "number") return notNats;
  return {
    kind: "greeted",
    greeting: {
      version,
      serverName: typeof serverName === "string" ? serverName : "",
      maxPayload,
      jetstream: rest["jetstream"] === true,
      tlsRequired: rest["tls_required"] === true,
      authRequired: rest["auth_required"] === true || rest["tls_verify"] === true,
      cluster: typeof rest["cluster"] === "string" ? rest["cluster"] : "",
    },
  };
}
