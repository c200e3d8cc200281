/** The JSON API's port in a simulated cluster: text messages over the simulated network, instead of WebSockets over TLS. */
import { startJsonApi } from "../../actors/json/api.ts";
import { createLogins } from "../../actors/json/logins.ts";
import { createJsonWatchers } from "../../actors/json/watcher.ts";
import { createUsers, setPassword } from "../../actors/json/users.ts";
import { clusterOf } from "../../actors/manager/bootstrap.ts";
import type { Manager } from "../../actors/manager/manager.ts";
import { Connection, type Wire } from "../../edges/juju/connection.ts";
import { Registry } from "../../edges/juju/dispatch.ts";
import { createFacades } from "../../edges/juju/facades/index.ts";
import { Feed } from "../../edges/juju/feed/feed.ts";
import { Tickets } from "../../edges/juju/tickets.ts";
import { loginNameOf } from "../../edges/juju/login-name.ts";
import type { MethodDescriptor } from "../../proto/codec.ts";
import { UsersService } from "../../proto/gen/messages.ts";
import type { HashedPassword, Passwords } from "../../runtime/ports/passwords.ts";
import type { CallContext, Peer, Sink } from "../../runtime/ports/rpc.ts";
import type { Service } from "../../runtime/calls/served.ts";

/** Hashing without cost or randomness. */
const passwords: Passwords = {
  hash: (text) =>
    Promise.resolve({
      salt: new Uint8Array(),
      key: new TextEncoder().encode(text),
      cost: 1,
      blockSize: 1,
      parallelism: 1,
    }),
  verify: (text, hashed: HashedPassword | null) =>
    Promise.resolve(hashed !== null && Buffer.from(hashed.key).toString() === text),
};

type Text = { readonly text: string };

const textCodec = {
  typeName: "text",
  encode: ({ text }: Text) => Uint8Array.from(Buffer.from(text)),
  decode: (bytes: Uint8Array): Text => ({ text: Buffer.from(bytes).toString() }),
};

function method(name: string, streams: { readonly requestStream: boolean; readonly responseStream: boolean }) {
  const described = { path: `/JsonWire/${name}`, request: textCodec, response: textCodec, ...streams };
  return described as unknown as MethodDescriptor<Text, Text>;
}

/** One channel per connection: the client receives with `Hear` and sends with `Say`. An empty text is a ping or a pong. */
export const JsonWire = {
  name: "JsonWire",
  methods: {
    Hear: method("Hear", { requestStream: false, responseStream: true }),
    Say: method("Say", { requestStream: true, responseStream: false }),
  },
};

/** The JSON API of one life of a manager; `open` counts the connections that are left. */
export function serveSimJson({ environment: env, services }: Manager): {
  readonly services: readonly Service[];
  open(): number;
} {
  const { clock, store, telemetry } = env;
  const api = startJsonApi(env, createLogins(env, passwords));
  const feed = new Feed({ store, clock });
  feed.start();
  const users = createUsers(env, passwords).handlers;
  const registry = new Registry(
    createFacades({
      ...services,
      store,
      clock,
      log: telemetry.log,
      feed,
      watchers: createJsonWatchers(env),
      users,
      setPassword: (name, text, rpc) => setPassword(env, passwords, name, text, rpc),
    }),
  );
  const { metrics } = telemetry;
  const parts = {
    api,
    registry,
    clock,
    log: telemetry.log,
    metrics: {
      requests: metrics.counter("json_requests", "r"),
      seconds: metrics.histogram("json_seconds", "s"),
      logins: metrics.counter("json_logins", "l"),
    },
    clusterId: () => clusterOf(env)?.id ?? "",
    servers: () => [],
    redirect: null,
    tickets: new Tickets(api, clock),
    loginName: (tag: string) => loginNameOf(store, tag),
  };
  const connections = new Map<Peer, Connection>();
  let count = 0;

  function hear(_request: Text, sink: Sink<Text>, { peer, signal }: CallContext): void {
    count += 1;
    const connection = new Connection(parts, {
      id: String(count),
      address: peer.address,
      scope: "model",
      refusal: null,
      certificate: null,
      checkCertificate: () => {},
      clientVersion: "",
      host: "",
    });
    connections.set(peer, connection);
    const end = (): void => {
      if (!connections.delete(peer)) return;
      connection.closed();
      sink.end();
    };
    const wire: Wire = {
      send: (text) => sink.write({ text }),
      sendShared: (beginning, result) => sink.write({ text: `${beginning}${result.text}}` }),
      ping: () => sink.write({ text: "" }),
      // The simulated network has no flow control: unit/json-connection tests slow readers.
      pause: () => undefined,
      resume: () => undefined,
      loggedIn: () => {},
      unsentBytes: () => 0,
      close: end,
      cut: end,
    };
    signal.addEventListener("abort", end, { once: true });
    connection.opened(wire);
  }

  async function say(texts: AsyncIterable<Text>, { peer }: CallContext): Promise<Text> {
    for await (const { text } of texts) {
      const connection = connections.get(peer);
      if (text === "") connection?.heard();
      else connection?.take(text);
    }
    return { text: "" };
  }

  return {
    services: [
      { service: JsonWire, handlers: { Hear: hear, Say: say } },
      { service: UsersService, handlers: users },
    ],
    open: () => connections.size,
  };
}
