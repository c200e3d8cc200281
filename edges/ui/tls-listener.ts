/**
 * The port of a manager for browsers: HTTPS with the certificate of the JSON API's port.
 *
 * TL1: connections without a page have small budgets, and never displace one with a page.
 */
import { createServer } from "node:https";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import type { Telemetry } from "../../runtime/ports/index.ts";
import { sourceOf } from "../../runtime/source-of.ts";
import type { Admission } from "../grpc/admission/admission.ts";
import { Crowd, type Member } from "../grpc/admission/crowd.ts";
import { Entrance } from "../grpc/admission/entrance.ts";
import { ListenError } from "../grpc/listener.ts";
import { secureContext, type JsonCredentials } from "../juju/secure-context.ts";
import type { Door } from "./door.ts";
import { PageFiles } from "./files.ts";
import { headersTimeoutMs, idleTimeoutMs, managerSocketsMax, managerUserSocketsMax } from "./limits.ts";
import { PageServer } from "./page-server.ts";

interface PageListenerOptions {
  readonly host: string;
  readonly port: number;
  readonly credentials: JsonCredentials;
  readonly door: Door;
  readonly telemetry: Pick<Telemetry, "log" | "metrics">;
  readonly admission: Admission;
}

export interface PageListener {
  readonly port: number;
  /** Open pages. */
  readonly pages: number;
  setCredentials(credentials: JsonCredentials): void;
  close(): Promise<void>;
}

const keepAliveMs = 30_000;
/** Interval between checks for requests that arrive too slowly, in milliseconds. */
const requestsCheckMs = 2_000;

interface Stranger extends Member {
  readonly socket: Duplex;
  readonly source: string;
}

/** Throws ListenError, and UserError if the page was not built. */
export async function listenPages(options: PageListenerOptions): Promise<PageListener> {
  const { host, port, credentials, door, telemetry, admission } = options;
  const { limits, refusals } = admission;
  const files = new PageFiles();
  const server = createServer({
    ...secureContext(credentials),
    handshakeTimeout: headersTimeoutMs,
    // Not a list: each socket keeps a copy of it, and with the copy the 64 KiB that Node cut it from.
    ALPNCallback: ({ protocols }) => (protocols.includes("http/1.1") ? "http/1.1" : undefined),
    headersTimeout: headersTimeoutMs,
    requestTimeout: headersTimeoutMs,
    keepAliveTimeout: idleTimeoutMs,
    connectionsCheckingInterval: requestsCheckMs,
  });
  const entrance = new Entrance(server, { port: "ui", admission, handshakeTimeoutMs: headersTimeoutMs, keepAliveMs });
  const strangers = new Crowd<Stranger>(limits.anonymousMax);
  const strangersBySocket = new WeakMap<Duplex, Stranger>();
  const welcome = (socket: Duplex): void => {
    const stranger = strangersBySocket.get(socket);
    if (stranger !== undefined) strangers.remove(stranger.source, stranger);
  };
  server.on("secureConnection", (socket: TLSSocket) => {
    const stranger: Stranger = { socket, source: sourceOf(socket.remoteAddress ?? ""), isServed: false };
    strangersBySocket.set(socket, stranger);
    socket.once("close", () => welcome(socket));
    const displaced = strangers.add(stranger.source, stranger, limits.anonymousPerAddressMax);
    if (displaced === null) return;
    refusals.count("ui", "anonymous-limit", displaced.source);
    displaced.socket.destroy();
  });
  const open = telemetry.metrics.gauge("muster_ui_pages", "Pages of the web interface that are open at this manager.");
  const pages = new PageServer(server, {
    door,
    files,
    log: telemetry.log,
    socketsMax: managerSocketsMax,
    userSocketsMax: managerUserSocketsMax,
    onLimit: (limit, address) => refusals.count("ui", limit, address),
    onPages: (count) => open.set(count),
    onWelcome: welcome,
  });
  await new Promise<void>((resolve, reject) => {
    entrance.server.once("error", (error: NodeJS.ErrnoException) => {
      const how =
        error.code === "EADDRINUSE"
          ? "stop the process that uses the port, or choose another with --ui-listen"
          : error.message;
      reject(new ListenError(`the web interface cannot listen on ${host}:${port}: ${how}`, { cause: error }));
    });
    entrance.server.listen({ host, port }, resolve);
  });
  // Node checks the time limits of requests, and knows its connections, from this event on; another server listens here.
  server.emit("listening");
  const address = entrance.server.address();
  return {
    port: typeof address === "object" && address !== null ? address.port : port,
    get pages() {
      return pages.pages;
    },
    setCredentials: (next) => server.setSecureContext(secureContext(next)),
    async close() {
      entrance.close();
      server.close();
      await pages.close();
      server.closeAllConnections();
    },
  };
}
