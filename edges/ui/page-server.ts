/**
 * Serves the page and its WebSocket on a server of Node's, behind a door.
 *
 * UI1: nothing but the door's own pages is served without a valid cookie.
 * UI2: a WebSocket is opened only by a page of this server, and the page is never shown in a frame.
 */
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { WebSocketServer, type ServerOptions, type WebSocket } from "ws";
import type { Logger } from "../../runtime/ports/index.ts";
import { plainAddress } from "../../runtime/source-of.ts";
import { ByteBudget } from "../grpc/admission/byte-budget.ts";
import { refuseUpgrade } from "../grpc/admission/https-port.ts";
import { plainPage, refusedUpgrade, send, sentencePage, type Answer } from "./answers.ts";
import type { Door, Visitor } from "./door.ts";
import type { PageFiles } from "./files.ts";
import * as defaults from "./limits.ts";
import { PageSocket, closeForNow, type PageLimits } from "./page-socket.ts";

interface PageServerOptions {
  readonly door: Door;
  readonly files: PageFiles;
  readonly log: Logger;
  /** Pages at once. */
  readonly socketsMax: number;
  /** Pages of one user at once. */
  readonly userSocketsMax: number;
  readonly limits?: PageLimits;
  /** The number of open pages has changed. */
  readonly onPages?: (pages: number) => void;
  /** A page was refused or ended at a limit. */
  readonly onLimit?: (limit: "known-limit" | "known-bytes", address: string) => void;
  /** Does the work for a request in its turn; at once if absent. `isKnown`: of a browser with a valid cookie. */
  readonly handle?: (request: IncomingMessage, response: ServerResponse, work: () => void, isKnown: boolean) => void;
  /** A connection has opened a page, and now counts as one of a user. */
  readonly onWelcome?: (socket: Duplex) => void;
}

interface Page {
  readonly socket: Duplex;
  readonly address: string;
  /** Null while it is being opened. */
  opened: PageSocket | null;
}

const socketPath = "/ws";
/** Where a browser says that it shows an answer inside of another page. */
const framed: readonly unknown[] = ["iframe", "frame", "embed", "object"];

const wrongOrigin = "This page can be used only from its own address, not from another page.";
const inFrame = "Muster does not run inside of another page: open its address in a window of its own.";

const addressOf = ({ socket }: IncomingMessage): string => plainAddress(socket.remoteAddress ?? "");

export class PageServer {
  readonly #options: PageServerOptions;
  readonly #limits: PageLimits;
  readonly #websockets: WebSocketServer;
  readonly #pages = new Map<WebSocket, Page>();
  /** Pages of each user. */
  readonly #users = new Map<string, number>();
  readonly #bytes: ByteBudget;
  #isClosing = false;

  constructor(server: Pick<Server, "on">, options: PageServerOptions) {
    this.#options = options;
    this.#limits = options.limits ?? defaults;
    this.#bytes = new ByteBudget(this.#limits.pagesBytesMax);
    // The library's types do not have `closeTimeout` yet.
    const settings: ServerOptions & { readonly closeTimeout: number } = {
      noServer: true,
      maxPayload: defaults.messageBytesMax,
      perMessageDeflate: false,
      clientTracking: false,
      closeTimeout: this.#limits.closeTimeoutMs,
    };
    this.#websockets = new WebSocketServer(settings);
    server.on("request", (request: IncomingMessage, response: ServerResponse) => {
      const work = (): void => void this.#onRequest(request, response);
      if (options.handle === undefined) work();
      else options.handle(request, response, work, options.door.visitorOf(request) !== null);
    });
    server.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) =>
      this.#onUpgrade(request, socket, head),
    );
  }

  /** Open pages. */
  get pages(): number {
    return this.#pages.size;
  }

  /** Breaks the connections of all pages; they connect again. */
  disconnect(): void {
    for (const websocket of this.#pages.keys()) websocket.terminate();
  }

  /** Sends close frames to every page, and waits for them, for a moment. */
  async close(): Promise<void> {
    this.#isClosing = true;
    const ended = Array.from(
      this.#pages.keys(),
      (websocket) => new Promise<void>((resolve) => websocket.once("close", () => resolve())),
    );
    for (const [websocket, { opened }] of this.#pages)
      if (opened === null) websocket.terminate();
      else opened.leave();
    let timer: NodeJS.Timeout | undefined;
    const patience = new Promise<void>((resolve) => (timer = setTimeout(resolve, defaults.closeGraceMs)));
    await Promise.race([Promise.all(ended), patience]);
    clearTimeout(timer);
    this.disconnect();
  }

  async #onRequest(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      send(request, response, await this.#answer(request));
    } catch (error) {
      // The body's sender has gone away, or a bug.
      if (!request.destroyed) this.#options.log.error({ err: error }, "a request of the web interface failed");
      response.destroy();
    }
  }

  #answer(request: IncomingMessage): Promise<Answer> | Answer {
    const { door, files } = this.#options;
    const { headers, method } = request;
    const origin = door.originOf(headers.host ?? "");
    if (origin === null) return sentencePage(421, door.wrongHost);
    if (framed.includes(headers["sec-fetch-dest"])) return sentencePage(403, inFrame);
    const target = request.url ?? "/";
    if (!URL.canParse(target, origin)) return sentencePage(400, "This address cannot be read.");
    const url = new URL(target, origin);
    const isReading = method === "GET" || method === "HEAD";
    if (!isReading && headers.origin !== origin) return sentencePage(403, wrongOrigin);
    const own = door.answer(request, url);
    if (own !== null) return own;
    if (!isReading)
      return plainPage({ status: 405, main: "<p>Only GET is allowed.</p>", headers: { allow: "GET, HEAD" } });
    const isAllowed = files.isPublic(url.pathname) || door.visitorOf(request) !== null;
    if (!isAllowed) return door.refusal(request);
    return files.answer(url.pathname, request) ?? sentencePage(404, `There is no ${url.pathname} here.`);
  }

  #refusalOf(request: IncomingMessage): readonly [number, string] | Visitor {
    const { door, socketsMax, userSocketsMax } = this.#options;
    const { host = "", origin } = request.headers;
    const own = door.originOf(host);
    if (own === null) return [421, door.wrongHost];
    if ((request.url ?? "").split("?")[0] !== socketPath) return [404, `WebSockets are at ${socketPath} only.`];
    // Browsers always send it, and pages cannot forge it.
    if (origin !== own) return [403, wrongOrigin];
    const visitor = door.visitorOf(request);
    if (visitor === null) return [401, "This page's session has ended."];
    if (this.#isClosing) return [503, "The server of the page is stopping."];
    const isFull = this.#pages.size >= socketsMax;
    const isUserFull = (this.#users.get(visitor.user) ?? 0) >= userSocketsMax;
    if (isFull || isUserFull) this.#options.onLimit?.("known-limit", addressOf(request));
    if (isFull) return [503, `${socketsMax} pages are open already: close some of them.`];
    if (isUserFull) return [503, `${userSocketsMax} pages of this user are open already: close some of them.`];
    return visitor;
  }

  #onUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const visitor = this.#refusalOf(request);
    if (!("open" in visitor)) return refuseUpgrade(socket, refusedUpgrade(...visitor));
    socket.on("error", () => undefined);
    this.#options.onWelcome?.(socket);
    this.#websockets.handleUpgrade(request, socket, head, (websocket) => {
      websocket.on("error", () => undefined);
      websocket.pause();
      const page: Page = { socket, address: addressOf(request), opened: null };
      this.#pages.set(websocket, page);
      this.#count(visitor.user, 1);
      const leaving = visitor.onLeft?.(() => page.opened?.end("this login has ended"));
      websocket.once("close", () => {
        leaving?.unsubscribe();
        this.#pages.delete(websocket);
        this.#count(visitor.user, -1);
      });
      void this.#open(websocket, visitor, page);
    });
  }

  #count(user: string, change: 1 | -1): void {
    const pages = (this.#users.get(user) ?? 0) + change;
    if (pages === 0) this.#users.delete(user);
    else this.#users.set(user, pages);
    this.#options.onPages?.(this.#pages.size);
  }

  async #open(websocket: WebSocket, visitor: Visitor, page: Page): Promise<void> {
    const { socket, address } = page;
    const { log, onLimit } = this.#options;
    let session;
    try {
      session = await visitor.open(address);
    } catch (error) {
      websocket.resume();
      closeForNow(websocket, error instanceof Error ? error.message : String(error));
      return;
    }
    if (!this.#pages.has(websocket) || websocket.readyState !== websocket.OPEN) return session.backend.close?.();
    page.opened = new PageSocket(websocket, session, {
      socket,
      log,
      bytes: this.#bytes,
      limits: this.#limits,
      onRelieved: () => onLimit?.("known-bytes", address),
    });
  }
}
