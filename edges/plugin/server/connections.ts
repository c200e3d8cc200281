/**
 * Serves a plugin's methods to its only host: gRPC as in `edges/grpc/server.ts`, without roles (whoever has the socket or
 * the host's certificate may call everything) and without its messages, which a driver does not need.
 */
import type { Duplex } from "node:stream";
import type { MethodDescriptor } from "../../../proto/codec.ts";
import type { Logger } from "../../../runtime/ports/index.ts";
import { Status, type Peer, type ServiceHandlers } from "../../../runtime/ports/rpc.ts";
import { erase } from "../../grpc/erase.ts";
import { refusesForeign } from "../../grpc/foreign-request.ts";
import { framedOnce } from "../../grpc/framing.ts";
import { knownLimits, type ConnectionLimits } from "../../grpc/http2/protocol.ts";
import { ServerConnection, type ConnectionHandler } from "../../grpc/http2/server-connection.ts";
import { ServerCall, refuse, type ServedMethod } from "../../grpc/server-call.ts";
import { parseTimeout } from "../../grpc/status.ts";

/** A task's configuration may contain whole files. Go plugins accept 4 MiB. */
const requestBytesMax = 64 * 1024 * 1024;

/** Windows for four such requests at once. The host is trusted: it starts the plugin. */
const limits: ConnectionLimits = {
  ...knownLimits,
  streamWindowBytes: requestBytesMax + 64 * 1024,
  connectionWindowBytes: 4 * requestBytesMax,
};

const host: Peer = { identity: null, local: true, address: "" };
const uncounted = { started: () => 0, ended: () => {} };

export class PluginConnections {
  readonly #log: Logger;
  readonly #methods = new Map<string, ServedMethod>();
  readonly #connections = new Map<ServerConnection, Set<ServerCall>>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Serves a generated service. */
  add<Service extends { readonly methods: object }>(service: Service, handlers: ServiceHandlers<Service>): void {
    const table = handlers as Readonly<Record<string, unknown>>;
    const methods = service.methods as Readonly<Record<string, MethodDescriptor<unknown, unknown>>>;
    for (const [name, method] of Object.entries(methods)) {
      this.#methods.set(method.path, {
        path: method.path,
        messageBytesMax: requestBytesMax,
        decode: (bytes) => method.request.decode(bytes),
        frame: framedOnce((message) => method.response.encode(message)),
        metrics: uncounted,
        log: this.#log,
        handler: erase(method, table[name]),
      });
    }
  }

  /** Accepts a connection whose handshake is complete. */
  serve(socket: Duplex): void {
    const calls = new Set<ServerCall>();
    const handler: ConnectionHandler = {
      onRequest: (stream, headers) => {
        if (refusesForeign(stream, headers)) return;
        const method = this.#methods.get(headers.path);
        if (method === undefined) {
          refuse(stream, Status.UNIMPLEMENTED, `unknown method ${headers.path}`);
          return;
        }
        const timeoutMs = headers.timeout === "" ? null : parseTimeout(headers.timeout);
        const call = new ServerCall(stream, method, host, headers.traceparent, calls);
        if (timeoutMs !== null) call.startDeadline(timeoutMs);
        call.startClientStream();
      },
      onClose: () => this.#connections.delete(connection),
    };
    const connection: ServerConnection = new ServerConnection(socket, handler, limits);
    this.#connections.set(connection, calls);
  }

  get count(): number {
    return this.#connections.size;
  }

  /** Ends every call with UNAVAILABLE, and closes the connections. */
  close(): void {
    for (const [connection, calls] of this.#connections) {
      for (const call of calls) call.shutDown(false);
      connection.close();
    }
  }
}
