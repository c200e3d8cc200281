/**
 * The JSON API's port: WebSockets over TLS. Paths (reference §5): `/`, `/model/UUID/api` and `/environment/UUID/api` belong to
 * the model, `/api` belongs to the controller, and `/model/UUID/log` streams output (`debug-log.ts`). A connection with another
 * UUID is accepted, and each of its requests gets an error, so that clients can show the reason.
 *
 * Browsers close a WebSocket whose server requests a client certificate, so only the separate port for agents requests one
 * ([ADR 36](../../docs/adr/0036-ports-of-the-json-api.md)).
 *
 * L1: a new server certificate does not affect open connections, except logins by certificates whose root is no longer
 *     trusted.
 * L2: no client waits for another: each connection has its own limits, and the number of connections is limited.
 * L3: connections without a login have small budgets, and never displace one with a login (`../grpc/admission/limits.ts`), also
 *     while they send plain requests (`../grpc/admission/http-strangers.ts`).
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { WebSocketServer, type WebSocket } from "ws";
import type { Telemetry } from "../../runtime/ports/index.ts";
import type { Admission } from "../grpc/admission/admission.ts";
import { HttpStrangers } from "../grpc/admission/http-strangers.ts";
import { createHttpsPort, refuseUpgrade, type HttpsPort } from "../grpc/admission/https-port.ts";
import { callerOf } from "../grpc/caller.ts";
import { CertifiedConnections } from "../grpc/certified-connections.ts";
import { isVouchedFor } from "../grpc/cross-signed.ts";
import type { Caller, Membership } from "../grpc/roles.ts";
import type { Arrival, ConnectionParts, Wire } from "./connection.ts";
import { Connection } from "./connection.ts";
import { DebugLog, type LogArrival } from "./debug-log.ts";
import { Intake } from "./intake.ts";
import { modelUuid } from "./model.ts";
import { isAllowedOrigin } from "./origin.ts";
import { writeInPieces } from "./pieces.ts";
import { answersRegistration, type RegistrationParts } from "./registration.ts";
import { RequestError } from "./request-error.ts";
import { secureContext, type JsonCredentials } from "./secure-context.ts";
import { Tickets } from "./tickets.ts";
import { answersWebLogin } from "./web-login.ts";
import { connectionsMax as limit, fragmentsMax, messageBytesMax } from "./wire/limits.ts";

interface JsonAddress {
  readonly host: string;
  readonly port: number;
}

interface JsonListenerOptions extends JsonAddress {
  /** A second port, which requests a node certificate; none if absent. */
  readonly agents?: JsonAddress | null;
  /** Further origins from which pages may connect, as browsers write them; none if absent. */
  readonly origins?: readonly string[];
  readonly credentials: JsonCredentials;
  readonly parts: Omit<ConnectionParts, "metrics" | "log" | "clock" | "tickets"> &
    Pick<ConnectionParts, "clock"> &
    Pick<RegistrationParts, "rootPem">;
  readonly telemetry: Telemetry;
  /** Limits shared by all ports of the process. */
  readonly admission: Admission;
  /** Maximum number of connections (default 10,000). */
  readonly connectionsMax?: number;
}

export interface JsonListener {
  readonly port: number;
  /** The port for agents; null if there is none. */
  readonly agentPort: number | null;
  /** Open connections of both ports. */
  readonly connections: number;
  setCredentials(credentials: JsonCredentials): void;
  /** Sends close frames to every client and waits for them, for up to `graceMs` milliseconds. */
  close(graceMs: number): Promise<void>;
}

/** For the TLS handshake, and for each request; the connection's chart limits the time after the upgrade. */
const requestTimeoutMs = 10_000;
/** Time of an idle connection between requests; each answer closes its connection. */
const idleTimeoutMs = 5_000;

/** A client that has presented a certificate. */
interface CertifiedClient {
  readonly caller: Caller;
  readonly connection: Connection;
}

type Place = Pick<Arrival, "scope" | "refusal"> & {
  /** The path streams output and accepts no requests. */
  readonly isLog: boolean;
};

/** Null for an unknown path. */
function placeOf(path: string, clusterId: string): Place | null {
  const [plain = ""] = path.split("?");
  if (plain === "/" || plain === "") return { scope: "model", refusal: null, isLog: false };
  if (plain === "/api") return { scope: "controller", refusal: null, isLog: false };
  const match = /^\/(?:(model|environment)\/([^/]{1,100})\/api|(model)\/([^/]{1,100})\/(log))\/?$/.exec(plain);
  if (match === null) return null;
  const [, kind = "model", uuid = match[4] ?? ""] = match;
  const isLog = match[5] !== undefined;
  if (uuid === modelUuid(clusterId)) return { scope: "model", refusal: null, isLog };
  const refusal = new RequestError(`unknown ${kind}: "${uuid}"`, kind === "model" ? "model not found" : "not found");
  return { scope: "model", refusal, isLog };
}

/** Throws ListenError. */
export async function listenJson(options: JsonListenerOptions): Promise<JsonListener> {
  const { admission, telemetry, connectionsMax = limit, agents = null, origins = [] } = options;
  const { limits, refusals } = admission;
  const { metrics, log } = telemetry;
  const open = metrics.gauge("muster_json_connections", "Clients of the JSON API that are connected.");
  const parts: ConnectionParts = {
    ...options.parts,
    tickets: new Tickets(options.parts.api, options.parts.clock),
    log,
    metrics: {
      requests: metrics.counter("muster_json_requests_total", "Requests of the JSON API, by outcome."),
      seconds: metrics.histogram("muster_json_request_seconds", "Duration of requests of the JSON API."),
      logins: metrics.counter("muster_json_logins_total", "Logins at the JSON API, by outcome."),
    },
  };
  const registering: RegistrationParts = { ...parts, rootPem: options.parts.rootPem };
  const sockets = new WebSocketServer({
    noServer: true,
    maxPayload: messageBytesMax,
    maxFragments: fragmentsMax,
    // Compression costs about 300 KiB per connection.
    perMessageDeflate: false,
    clientTracking: false,
  });
  const connections = new Map<Duplex, Connection>();
  const strangers = new HttpStrangers(admission, "json");
  const intakes = new Map<Duplex, Intake>();
  let credentials = options.credentials;
  // The identity of each login also checks that the node still exists.
  const membership: Membership = {
    organization: parts.clusterId,
    isRemoved: () => false,
    onChange: () => ({ unsubscribe: () => undefined }),
  };
  const certified = new CertifiedConnections<CertifiedClient>({
    clock: parts.clock,
    membership,
    rootPem: credentials.acceptedPem,
    handshakeTimeoutMs: requestTimeoutMs,
    end: ({ connection }) => connection.certificateEnded(),
  });
  let count = 0;
  let isClosing = false;
  let onEmpty: (() => void) | null = null;

  const sweep = setInterval(() => {
    for (const intake of intakes.values()) if (intake.isStalled()) intake.expire();
  }, limits.knownSweepMs).unref();
  const onUpgrade = (request: IncomingMessage, socket: Duplex, head: Buffer): void => {
    const tls = socket as TLSSocket;
    const place = placeOf(request.url ?? "/", parts.clusterId());
    const refuse = (status: string): void =>
      refuseUpgrade(socket, `HTTP/1.1 ${status}\r\nConnection: close\r\ncontent-length: 0\r\n\r\n`);
    if (place === null) return refuse("404 Not Found");
    const { origin, host = "" } = request.headers;
    if (origin !== undefined && !isAllowedOrigin(origin, host, origins)) {
      telemetry.log.warn({ origin }, "refused a page of another origin; allow it with --json-origin");
      return refuse("403 Forbidden");
    }
    if (isClosing) return refuse("503 Service Unavailable");
    if (connections.size >= connectionsMax && !strangers.makeRoomFor(socket)) {
      refusals.count("json", "known-limit", tls.remoteAddress ?? "");
      return refuse("503 Service Unavailable");
    }
    const caller = callerOf(tls, credentials.acceptedPem);
    const { peer } = caller;
    count += 1;
    const clientVersion = request.headers["x-juju-clientversion"];
    const connection = new Connection(parts, {
      ...place,
      id: String(count),
      address: peer.address,
      certificate: peer.identity,
      checkCertificate: () => certified.checkExpiry(client),
      clientVersion: typeof clientVersion === "string" ? clientVersion : "",
      host,
    });
    const client: CertifiedClient = { caller, connection };
    certified.add(client, (rootPem, nowMs) => isVouchedFor(tls, rootPem, nowMs));
    connections.set(socket, connection);
    open.set(connections.size);
    socket.once("close", () => {
      connection.closed();
      certified.remove(client);
      connections.delete(socket);
      intakes.delete(socket);
      open.set(connections.size);
      if (connections.size === 0) onEmpty?.();
    });
    socket.on("error", () => undefined);
    sockets.handleUpgrade(request, socket, head, (websocket) => {
      const intake = new Intake(websocket, socket, admission, peer.address);
      intakes.set(socket, intake);
      const log = place.isLog
        ? {
            authorization: request.headers.authorization ?? "",
            cookie: request.headers.cookie ?? "",
            query: (request.url ?? "").split("?")[1] ?? "",
          }
        : null;
      const onLogin = (): void => {
        strangers.welcome(socket);
        intake.becomeKnown();
      };
      serve(websocket, socket, connection, { intake, onLogin, log });
    });
  };

  const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    const { origin, host = "" } = request.headers;
    if (origin !== undefined && !isAllowedOrigin(origin, host, origins))
      return void response.writeHead(403, { connection: "close" }).end();
    if (answersWebLogin(request, response, parts) || answersRegistration(request, response, registering)) return;
    response.writeHead(426, { "content-type": "text/plain", connection: "close" }).end("this is a WebSocket API\n");
  };

  const ports: HttpsPort[] = [];
  const openPort = async (address: JsonAddress, flag: string, requestCert: boolean): Promise<number> => {
    const port = createHttpsPort({
      ...address,
      name: "the JSON API",
      flag,
      label: "json",
      context: secureContext(credentials),
      requestCert,
      admission,
      strangers,
      requestTimeoutMs,
      idleTimeoutMs,
    });
    port.server.on("request", (request, response) =>
      strangers.handle(request, response, () => onRequest(request, response)),
    );
    port.server.on("upgrade", onUpgrade);
    const listening = await port.listen();
    ports.push(port);
    return listening;
  };
  const shut = (): void => {
    clearInterval(sweep);
    certified.close();
    for (const each of ports) each.close();
  };

  let port: number;
  let agentPort: number | null = null;
  try {
    port = await openPort({ host: options.host, port: options.port }, "--json-listen", false);
    if (agents !== null) agentPort = await openPort(agents, "--json-agent-listen", true);
  } catch (error) {
    shut();
    throw error;
  }
  return {
    port,
    agentPort,
    get connections() {
      return connections.size;
    },
    setCredentials: (next) => {
      credentials = next;
      for (const each of ports) each.setContext(secureContext(next));
      certified.setRoots(next.acceptedPem);
    },
    async close(graceMs) {
      isClosing = true;
      shut();
      const empty = new Promise<void>((resolve) => {
        onEmpty = resolve;
        if (connections.size === 0) resolve();
      });
      for (const connection of connections.values()) connection.stop();
      let timer: NodeJS.Timeout | undefined;
      const patience = new Promise<void>((resolve) => (timer = setTimeout(resolve, graceMs)));
      await Promise.race([empty, patience]);
      clearTimeout(timer);
      for (const socket of connections.keys()) socket.destroy();
      for (const each of ports) each.closeAllConnections();
    },
  };
}

/** Connects a WebSocket and its connection. */
function serve(
  websocket: WebSocket,
  socket: Duplex,
  connection: Connection,
  { intake, onLogin, log }: { readonly intake: Intake; onLogin(): void; readonly log: LogArrival | null },
): void {
  const pieces = writeInPieces(socket);
  const wire: Wire = {
    send: (text) => websocket.send(text, () => undefined),
    // Bypasses the library, which would build one string of both parts, and its bytes, for each client. The library writes
    // whole frames, each at once, so this frame never interrupts another.
    sendShared(beginning, result) {
      if (websocket.readyState !== websocket.OPEN) return;
      socket.cork();
      for (const part of result.message(beginning)) socket.write(part);
      socket.uncork();
    },
    ping: () => {
      if (websocket.readyState === websocket.OPEN) websocket.ping();
    },
    pause: () => intake.setRoom(false),
    resume: () => intake.setRoom(true),
    loggedIn: onLogin,
    unsentBytes: () => websocket.bufferedAmount - pieces.takenBytes,
    close: (code, reason) => {
      // The client answers the close frame with its own, which a paused reader would not see.
      websocket.resume();
      websocket.close(code, reason);
    },
    cut: () => socket.destroy(),
  };
  websocket.on("message", (data, isBinary) => {
    // Messages are text frames (reference §1.3).
    const bytes = data as Buffer;
    intake.onMessage(bytes.length, () => {
      if (isBinary) connection.broken("a binary message");
      else if (log !== null) connection.broken("a message on a connection that only streams output");
      else connection.take(bytes.toString("utf8"));
    });
  });
  websocket.on("pong", () => connection.heard());
  // On a malformed or oversized frame the library sends the right close code, and `close` follows.
  websocket.on("error", () => undefined);
  if (log === null) return connection.opened(wire);
  const reader = new DebugLog(wire, log, (text) => connection.take(text));
  connection.opened(reader);
  reader.begin();
}
