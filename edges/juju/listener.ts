/**
 * The JSON API's port: WebSockets on TLS. Paths (reference §5): `/` and `/model/UUID/api`, `/environment/UUID/api` are of
 * the model, `/api` is of the controller. A path with another UUID is accepted, and each request then told that there is
 * no such model, so that clients can say so.
 *
 * L1: certificates are exchanged without touching connections that are open.
 * L2: nobody waits for somebody else: each connection has bounds of its own, and their number has one.
 * L3: who has not logged in has small budgets, and takes nobody's place who has (`../grpc/admission/limits.ts`).
 */
import { constants } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { createServer } from "node:https";
import type { Duplex } from "node:stream";
import type { SecureContextOptions, TLSSocket } from "node:tls";
import { WebSocketServer, type WebSocket } from "ws";
import type { Telemetry } from "../../runtime/ports.ts";
import type { Admission } from "../grpc/admission/admission.ts";
import { Crowd, sourceOf, type Member } from "../grpc/admission/crowd.ts";
import { Entrance } from "../grpc/admission/entrance.ts";
import { callerOf } from "../grpc/caller.ts";
import { ListenError } from "../grpc/listener.ts";
import { keyExchangeGroups } from "../grpc/tls-options.ts";
import type { Arrival, ConnectionParts, Wire } from "./connection.ts";
import { Connection } from "./connection.ts";
import { Intake } from "./intake.ts";
import { modelUuid } from "./model.ts";
import { writeInPieces } from "./pieces.ts";
import { RequestError } from "./request-error.ts";
import { connectionsMax as limit, fragmentsMax, messageBytesMax } from "./wire/limits.ts";

/** All PEM. */
export interface JsonCredentials {
  /** Leaf, then the authority. */
  readonly certificatePem: string;
  readonly keyPem: string;
  /** The roots that clients' certificates may come from. */
  readonly acceptedPem: string;
}

export interface JsonListenerOptions {
  readonly host: string;
  readonly port: number;
  readonly credentials: JsonCredentials;
  readonly parts: Omit<ConnectionParts, "metrics" | "log" | "clock"> & Pick<ConnectionParts, "clock">;
  readonly telemetry: Telemetry;
  /** The limits that all ports of the process share. */
  readonly admission: Admission;
  /** Connections at a time (10,000). */
  readonly connectionsMax?: number;
}

export interface JsonListener {
  readonly port: number;
  /** Connections that are there. */
  readonly connections: number;
  setCredentials(credentials: JsonCredentials): void;
  /** Says goodbye to every client and waits for them, at most `graceMs` milliseconds. */
  close(graceMs: number): Promise<void>;
}

/** For TLS; the upgrade has a bound of its own in the connection's chart. */
const tlsHandshakeMs = 10_000;
const keepAliveMs = 30_000;
/** How often a request for the upgrade that comes drop by drop is looked for, in milliseconds. */
const headersCheckMs = 2_000;

/** A connection that has not logged in. */
interface Stranger extends Member {
  readonly socket: Duplex;
  readonly source: string;
}

/** What the port's TLS is like. */
export function secureContext({ certificatePem, keyPem, acceptedPem }: JsonCredentials): SecureContextOptions {
  return {
    cert: certificatePem,
    key: keyPem,
    ca: acceptedPem,
    minVersion: "TLSv1.2",
    ecdhCurve: keyExchangeGroups,
    // A resumed session would skip the check of a client's certificate.
    secureOptions: constants.SSL_OP_NO_TICKET,
    sessionTimeout: 1,
  };
}

type Place = Pick<Arrival, "scope" | "refusal">;

/** Null for a path that is none of ours. */
export function placeOf(path: string, clusterId: string): Place | null {
  const [plain = ""] = path.split("?");
  if (plain === "/" || plain === "") return { scope: "model", refusal: null };
  if (plain === "/api") return { scope: "controller", refusal: null };
  const match = /^\/(model|environment)\/([^/]{1,100})\/api\/?$/.exec(plain);
  if (match === null) return null;
  const [, kind = "", uuid = ""] = match;
  if (uuid === modelUuid(clusterId)) return { scope: "model", refusal: null };
  const refusal = new RequestError(`unknown ${kind}: "${uuid}"`, kind === "model" ? "model not found" : "not found");
  return { scope: "model", refusal };
}

/** Throws ListenError. */
export async function listenJson(options: JsonListenerOptions): Promise<JsonListener> {
  const { admission, telemetry, connectionsMax = limit } = options;
  const { limits, refusals } = admission;
  const { metrics, log } = telemetry;
  const open = metrics.gauge("muster_json_connections", "Clients of the JSON API that are connected.");
  const parts: ConnectionParts = {
    ...options.parts,
    log,
    metrics: {
      requests: metrics.counter("muster_json_requests_total", "Requests of the JSON API, by outcome."),
      seconds: metrics.histogram("muster_json_request_seconds", "How long requests of the JSON API took."),
      logins: metrics.counter("muster_json_logins_total", "Logins at the JSON API, by outcome."),
    },
  };
  const sockets = new WebSocketServer({
    noServer: true,
    maxPayload: messageBytesMax,
    maxFragments: fragmentsMax,
    // Compression costs some 300 KiB for each connection.
    perMessageDeflate: false,
    clientTracking: false,
  });
  const connections = new Map<Duplex, Connection>();
  const strangers = new Crowd<Stranger>(limits.anonymousMax);
  const intakes = new Map<Duplex, Intake>();
  const strangersBySocket = new WeakMap<Duplex, Stranger>();
  let credentials = options.credentials;
  let count = 0;
  let isClosing = false;
  let onEmpty: (() => void) | null = null;

  const server = createServer({
    ...secureContext(credentials),
    requestCert: true,
    rejectUnauthorized: false,
    handshakeTimeout: tlsHandshakeMs,
    // Not as a list: of that each socket keeps a copy, and with the copy the 64 KiB that Node cut it from.
    ALPNCallback: ({ protocols }) => (protocols.includes("http/1.1") ? "http/1.1" : undefined),
    headersTimeout: tlsHandshakeMs,
    connectionsCheckingInterval: headersCheckMs,
  });
  const entrance = new Entrance(server, {
    port: "json",
    admission,
    handshakeTimeoutMs: tlsHandshakeMs,
    keepAliveMs,
  });
  const sweep = setInterval(() => {
    for (const intake of intakes.values()) if (intake.isStalled()) intake.expire();
  }, limits.knownSweepMs).unref();
  const displace = (displaced: Stranger | null): void => {
    if (displaced === null) return;
    refusals.count("json", "anonymous-limit", displaced.source);
    displaced.socket.destroy();
  };
  const welcome = (socket: Duplex): void => {
    const stranger = strangersBySocket.get(socket);
    if (stranger !== undefined) strangers.remove(stranger.source, stranger);
  };
  server.on("clientError", (_error, socket) => socket.destroy());
  server.on("request", (_request, response) => {
    response.writeHead(426, { "content-type": "text/plain", connection: "close" }).end("this is a WebSocket API\n");
  });

  server.on("secureConnection", (socket: TLSSocket) => {
    if (isClosing) return void socket.destroy();
    const stranger: Stranger = { socket, source: sourceOf(socket.remoteAddress ?? ""), isServed: false };
    strangersBySocket.set(socket, stranger);
    socket.once("close", () => welcome(socket));
    displace(strangers.add(stranger.source, stranger, limits.anonymousPerAddressMax));
    // Whoever connects and then says nothing is ended by its own timer, until the upgrade makes a connection of it.
    socket.setTimeout(tlsHandshakeMs, () => socket.destroy());
  });

  server.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    const tls = socket as TLSSocket;
    tls.setTimeout(0);
    const place = placeOf(request.url ?? "/", parts.clusterId());
    const refuse = (status: string): void => void socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\n\r\n`);
    if (place === null) return refuse("404 Not Found");
    if (isClosing) return refuse("503 Service Unavailable");
    if (connections.size >= connectionsMax) {
      // The newcomer is among them, and goes last.
      const displaced = strangers.size > 1 ? strangers.displace() : null;
      if (displaced === null || displaced.socket === socket) {
        refusals.count("json", "known-limit", tls.remoteAddress ?? "");
        return refuse("503 Service Unavailable");
      }
      displace(displaced);
    }
    const { peer } = callerOf(tls, credentials.acceptedPem);
    count += 1;
    const clientVersion = request.headers["x-juju-clientversion"];
    const connection = new Connection(parts, {
      ...place,
      id: String(count),
      address: peer.address,
      certificate: peer.identity,
      clientVersion: typeof clientVersion === "string" ? clientVersion : "",
    });
    connections.set(socket, connection);
    open.set(connections.size);
    socket.once("close", () => {
      connection.closed();
      connections.delete(socket);
      intakes.delete(socket);
      open.set(connections.size);
      if (connections.size === 0) onEmpty?.();
    });
    socket.on("error", () => undefined);
    sockets.handleUpgrade(request, socket, head, (websocket) => {
      const intake = new Intake(websocket, socket, admission, peer.address);
      intakes.set(socket, intake);
      serve(websocket, socket, connection, intake, () => {
        welcome(socket);
        intake.becomeKnown();
      });
    });
  });

  await new Promise<void>((resolve, reject) => {
    entrance.server.once("error", (error: NodeJS.ErrnoException) => {
      const where = `${options.host}:${options.port}`;
      const how =
        error.code === "EADDRINUSE" ? "stop what listens there or choose another with --json-listen" : error.message;
      reject(new ListenError(`the JSON API cannot listen on ${where}: ${how}`, { cause: error }));
    });
    entrance.server.listen({ host: options.host, port: options.port }, resolve);
  });
  const address = entrance.server.address();
  return {
    port: typeof address === "object" && address !== null ? address.port : options.port,
    get connections() {
      return connections.size;
    },
    setCredentials: (next) => {
      credentials = next;
      server.setSecureContext(secureContext(next));
    },
    async close(graceMs) {
      isClosing = true;
      clearInterval(sweep);
      entrance.close();
      server.close();
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
      server.closeAllConnections();
    },
  };
}

/** Joins a WebSocket and its connection. */
function serve(
  websocket: WebSocket,
  socket: Duplex,
  connection: Connection,
  intake: Intake,
  onLogin: () => void,
): void {
  const pieces = writeInPieces(socket);
  const wire: Wire = {
    send: (text) => websocket.send(text, () => undefined),
    // Past the library, which would make one string of both, and bytes of that, for each client anew. It writes whole frames,
    // each when it is told to, so that ours are between two of them.
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
      // A goodbye is answered by one, which a paused reader would not see.
      websocket.resume();
      websocket.close(code, reason);
    },
    cut: () => socket.destroy(),
  };
  websocket.on("message", (data, isBinary) => {
    // Frames are text (reference §1.3).
    const bytes = data as Buffer;
    intake.onMessage(bytes.length, () => {
      if (isBinary) connection.broken("a binary message");
      else connection.take(bytes.toString("utf8"));
    });
  });
  websocket.on("pong", () => connection.heard());
  // A broken frame or one that is too big: the library says goodbye with the right code, and the end follows.
  websocket.on("error", () => undefined);
  connection.opened(wire);
}
