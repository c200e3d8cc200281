/**
 * The port of a manager for browsers: HTTPS with the certificate of the JSON API's port.
 *
 * TL1: connections without a page have small budgets (`../grpc/admission/http-strangers.ts`), and never displace one with a page.
 */
import type { Telemetry } from "../../runtime/ports/index.ts";
import type { Admission } from "../grpc/admission/admission.ts";
import { HttpStrangers } from "../grpc/admission/http-strangers.ts";
import { createHttpsPort } from "../grpc/admission/https-port.ts";
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

/** Throws ListenError, and UserError if the page was not built. */
export async function listenPages(options: PageListenerOptions): Promise<PageListener> {
  const { host, port: wanted, credentials, door, telemetry, admission } = options;
  const files = new PageFiles();
  const strangers = new HttpStrangers(admission, "ui");
  const port = createHttpsPort({
    host,
    port: wanted,
    name: "the web interface",
    flag: "--ui-listen",
    label: "ui",
    context: secureContext(credentials),
    admission,
    strangers,
    requestTimeoutMs: headersTimeoutMs,
    idleTimeoutMs,
  });
  const open = telemetry.metrics.gauge("muster_ui_pages", "Pages of the web interface that are open at this manager.");
  const pages = new PageServer(port.server, {
    door,
    files,
    log: telemetry.log,
    socketsMax: managerSocketsMax,
    userSocketsMax: managerUserSocketsMax,
    onLimit: (limit, address) => admission.refusals.count("ui", limit, address),
    onPages: (count) => open.set(count),
    onWelcome: (socket) => strangers.welcome(socket),
    handle: (request, response, work, isKnown) => strangers.handle(request, response, work, isKnown),
  });
  const listening = await port.listen();
  return {
    port: listening,
    get pages() {
      return pages.pages;
    },
    setCredentials: (next) => port.setContext(secureContext(next)),
    async close() {
      port.close();
      await pages.close();
      port.closeAllConnections();
    },
  };
}
