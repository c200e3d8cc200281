/**
 * Docker's Engine API over HTTP/1.1: on a Unix socket, whose owner is an admin, and on TCP with certificates of users.
 *
 * DE1: every request ends with exactly one answer; an error of ours is 500 and does not reach other requests.
 * DE2: the size and duration of a request are limited (`bodyBytesMax`, Node's 16 KiB of headers, the times below), before its parts are kept.
 * DE3: a client that does not read holds what Node's buffer has and no more: lists and streams wait for it.
 */
import { chownSync, chmodSync } from "node:fs";
import { createServer, ServerResponse, type IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import findMyWay from "find-my-way";
import { version as ownVersion } from "../../lib/version.ts";
import type { OwnCalls } from "../grpc/own-calls.ts";
import type { Caller } from "../grpc/roles.ts";
import { listenOwned } from "../grpc/listener.ts";
import { isOlder, newestVersion, oldestVersion } from "./api-version.ts";
import { Attachments } from "./attachments.ts";
import { Upgrade } from "./client-stream.ts";
import { Execs } from "./execs.ts";
import { badRequest, Failure, failureOf, refuse } from "./failure.ts";
import { requestTimeoutMs, type Backend, type DockerRequest, type Handler } from "./request.ts";
import { routes } from "./routes.ts";
import { textOf } from "./written.ts";

/** Time for the headers of a request, in milliseconds. */
const headersTimeoutMs = 10_000;
/** Time that an idle connection is kept for the next request: Go's clients keep theirs for 90 s. */
const idleTimeoutMs = 100_000;
/** How often requests that arrive too slowly are looked for, in milliseconds. */
const requestsCheckMs = 2_000;
/** Connections on the socket; one more is closed at once. */
const connectionsMax = 4_096;

interface DockerServerOptions extends Backend {
  /** The manager's methods as that caller may call them; null: with the rights of the socket's owner. */
  callsOf(caller: Caller | null, signal: AbortSignal): OwnCalls;
}

interface DockerServer {
  /** Rejects with ListenError. `group`: a numeric group that may use the socket, too; null: only its owner. */
  listenUnix(path: string, group: number | null): Promise<void>;
  /** Answers a request that another listener has accepted. */
  answer(message: IncomingMessage, response: ServerResponse, caller: Caller): void;
  /** The same for one that asks to continue as something else. `head`: what was read beyond its headers. */
  answerUpgrade(message: IncomingMessage, socket: Duplex, head: Buffer, caller: Caller): void;
  close(): void;
}

/** The answers to requests that Node does not pass on. */
const clientErrors: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: "431 Request Header Fields Too Large",
  ERR_HTTP_REQUEST_TIMEOUT: "408 Request Timeout",
};

/** The default reason is an exception with a stack, a tenth of a small request's time. */
const clientLeft = "the client is gone";

const prefix = /^\/v(\d+(?:\.\d+)?)(\/.*)$/;

const headers = {
  "api-version": newestVersion,
  "docker-experimental": "false",
  ostype: "linux",
  server: `Muster/${ownVersion} (linux)`,
} as const;

interface Route {
  readonly handler: Handler;
}

function routerOf(): findMyWay.Instance<findMyWay.HTTPVersion.V1> {
  const router = findMyWay({ maxParamLength: 1_024 });
  for (const [method, path, handler] of routes) router.on(method, path, () => undefined, { handler } satisfies Route);
  return router;
}

/** The version and the rest of the path. Throws Failure. */
function versioned(path: string): { readonly version: string; readonly rest: string } {
  const match = prefix.exec(path);
  if (match === null) return { version: newestVersion, rest: path };
  const [, version = "", rest = ""] = match;
  if (isOlder(newestVersion, version))
    throw badRequest(`client version ${version} is too new. Maximum supported API version is ${newestVersion}`);
  return { version, rest };
}

export function createDockerServer(options: DockerServerOptions): DockerServer {
  const { log } = options;
  const router = routerOf();
  const backend = { ...options, execs: new Execs(), attachments: new Attachments() };
  /** Connections that Node no longer knows. */
  const upgraded = new Set<Duplex>();

  async function answer(
    message: IncomingMessage,
    response: ServerResponse,
    caller: Caller | null,
    upgrade: Upgrade | null = null,
  ): Promise<void> {
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    const [path = "/", search = ""] = (message.url ?? "/").split(/\?(.*)/s, 2);
    const leaving = new AbortController();
    const gone = upgrade === null ? response : message.socket;
    gone.once("close", () => leaving.abort(clientLeft));
    try {
      const { version, rest } = versioned(path);
      if (isOlder(version, oldestVersion)) {
        const sentence =
          `client version ${version} is too old. Minimum supported API version is ${oldestVersion}, ` +
          "please upgrade your client to a newer version";
        return refuse(response, badRequest(sentence), true);
      }
      const found = router.find((message.method ?? "GET") as findMyWay.HTTPMethod, rest);
      const name = found?.params["name"] ?? found?.params["*"];
      if (found === null || name === "") throw new Failure(404, "page not found");
      const { handler } = found.store as Route;
      const request: DockerRequest = {
        backend,
        version,
        name: name ?? "",
        query: new URLSearchParams(search),
        message,
        response,
        upgrade,
        calls: options.callsOf(caller, leaving.signal),
        signal: leaving.signal,
      };
      const result = await handler(request);
      if (result === null) return;
      const { body, status } = result;
      if (body === undefined) {
        response.writeHead(status, status === 204 ? {} : { "content-length": "0" }).end();
        return;
      }
      response.writeHead(status, { "content-type": "application/json" }).end(`${textOf(body)}\n`);
    } catch (error) {
      if (leaving.signal.aborted) return;
      const failure = failureOf(error);
      if (failure === null) log.error({ err: error, path: rest(path) }, "the Engine API cannot answer a request");
      refuse(response, failure ?? new Failure(500, "the manager cannot answer this request: see its log"));
    }
  }

  /** Like any other request; a handler may take the connection, and otherwise it ends with the answer. */
  function answerUpgrade(message: IncomingMessage, socket: Duplex, head: Buffer, caller: Caller | null): void {
    upgraded.add(socket);
    socket.once("close", () => upgraded.delete(socket));
    socket.on("error", () => undefined);
    // A client that has sent all its input still reads; over TLS, Node would end its own side as well.
    socket.allowHalfOpen = true;
    const response = new ServerResponse(message);
    response.shouldKeepAlive = false;
    response.assignSocket(message.socket);
    // As Node does for the connections that it keeps. DE3
    socket.on("drain", () => response.emit("drain"));
    response.once("finish", () => socket.end(() => socket.destroy()));
    void answer(message, response, caller, new Upgrade(message, response, socket, head));
  }

  const server = createServer({
    headersTimeout: headersTimeoutMs,
    requestTimeout: requestTimeoutMs,
    keepAliveTimeout: idleTimeoutMs,
    connectionsCheckingInterval: requestsCheckMs,
  });
  server.maxConnections = connectionsMax;
  server.on("request", (message, response) => void answer(message, response, null));
  server.on("upgrade", (message, socket, head) => answerUpgrade(message, socket, head, null));
  server.on("clientError", (error: NodeJS.ErrnoException, socket) => {
    const status = clientErrors[error.code ?? ""] ?? "400 Bad Request";
    if (socket.writable) socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\n\r\n`, () => socket.destroy());
    else socket.destroy();
  });
  return {
    answer: (message, response, caller) => void answer(message, response, caller),
    answerUpgrade,
    async listenUnix(path, group) {
      await listenOwned(server, path);
      if (group === null) return;
      chownSync(path, -1, group);
      chmodSync(path, 0o660);
    },
    close() {
      server.close();
      server.closeAllConnections();
      for (const socket of upgraded) socket.destroy();
    },
  };
}

/** Without the variable parts, which may be names that a client keeps to itself. */
function rest(path: string): string {
  return path.split("/").slice(0, 3).join("/");
}
