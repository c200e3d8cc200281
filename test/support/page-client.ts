/** A page without a browser: its requests and its WebSocket, as a browser sends them. */
import { request as httpRequest, type IncomingHttpHeaders } from "node:http";
import { request as httpsRequest } from "node:https";
import { lookup as resolveName } from "node:dns";
import type { LookupFunction } from "node:net";
import { WebSocket } from "ws";
import { UiHello, UiRequest, UiResponse } from "../../proto/gen/messages.ts";
import type { Logger } from "../../runtime/ports/index.ts";

export const quietLog: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};

/** Names below `.localhost` are on this machine, as for browsers; not every system's resolver knows it. */
const lookup: LookupFunction = (name, options, done) =>
  resolveName(name.endsWith(".localhost") ? "127.0.0.1" : name, options, done);

export interface Fetched {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

interface FetchOptions {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Follows no redirects. */
export function fetched(address: string, { method = "GET", headers = {}, body }: FetchOptions = {}): Promise<Fetched> {
  const { promise, resolve, reject } = Promise.withResolvers<Fetched>();
  const request = address.startsWith("https:") ? httpsRequest : httpRequest;
  const sent = request(address, { method, headers, rejectUnauthorized: false, agent: false, lookup }, (response) => {
    const chunks: Buffer[] = [];
    response.on("data", (chunk: Buffer) => chunks.push(chunk));
    response.on("error", reject);
    response.on("end", () =>
      resolve({
        status: response.statusCode ?? 0,
        headers: response.headers,
        body: Buffer.concat(chunks).toString("utf8"),
      }),
    );
  });
  sent.on("error", reject);
  sent.end(body);
  return promise;
}

/** `NAME=VALUE` of the cookie that an answer sets; empty if none. */
export function cookieIn({ headers }: Fetched): string {
  return headers["set-cookie"]?.[0]?.split(";")[0] ?? "";
}

export interface PageClient {
  readonly socket: WebSocket;
  readonly hello: Promise<UiHello>;
  /** Everything received after the hello. */
  readonly received: UiResponse[];
  readonly closed: Promise<{ readonly code: number; readonly reason: string }>;
  send(request: Partial<UiRequest>): void;
  /** Resolves when such a message has been received. */
  until(matches: (response: UiResponse) => boolean): Promise<UiResponse>;
}

/** Rejects with `refused: STATUS BODY`. */
export async function connectPage(address: string, headers: Readonly<Record<string, string>>): Promise<PageClient> {
  const socket = new WebSocket(`${address.replace(/^http/, "ws")}ws`, {
    headers: { origin: address.replace(/\/$/, ""), ...headers },
    rejectUnauthorized: false,
    lookup,
  });
  const hello = Promise.withResolvers<UiHello>();
  const closed = Promise.withResolvers<{ readonly code: number; readonly reason: string }>();
  const received: UiResponse[] = [];
  const waiting = new Set<() => void>();
  hello.promise.catch(() => undefined);
  socket.on("message", (data) => {
    const response = UiResponse.decode(data as Buffer);
    if (response.call === 0) hello.resolve(UiHello.decode(response.message));
    else received.push(response);
    for (const each of waiting) each();
  });
  socket.on("close", (code, reason) => {
    closed.resolve({ code, reason: reason.toString() });
    hello.reject(new Error(`closed: ${code} ${reason.toString()}`));
  });
  await new Promise<void>((resolve, reject) => {
    socket.once("open", resolve);
    socket.on("error", reject);
    socket.on("unexpected-response", (_request, response) => {
      let body = "";
      response.on("data", (chunk: Buffer) => (body += chunk.toString()));
      response.on("end", () => reject(new Error(`refused: ${response.statusCode} ${body}`)));
    });
  });
  return {
    socket,
    hello: hello.promise,
    received,
    closed: closed.promise,
    send: (request) => socket.send(UiRequest.encode(UiRequest.create(request))),
    until: (matches) =>
      new Promise((resolve) => {
        const look = (): void => {
          const found = received.find(matches);
          if (found === undefined) return;
          waiting.delete(look);
          resolve(found);
        };
        waiting.add(look);
        look();
      }),
  };
}
