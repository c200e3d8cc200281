/** One request to the Engine API, and its answer, as the handlers of `routes.ts` see them. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Clock, Logger } from "../../runtime/ports/index.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { OwnCalls } from "../grpc/own-calls.ts";
import { isOlder } from "./api-version.ts";
import type { Attachments } from "./attachments.ts";
import { tooLarge, type Upgrade } from "./client-stream.ts";
import type { Execs } from "./execs.ts";
import { badRequest, Failure } from "./failure.ts";
import { parseFilters, type Filters } from "./filters.ts";
import { parseJson } from "./go-json.ts";
import { check, type Json, type Shape } from "./shape.ts";
import { textOf as jsonTextOf } from "./written.ts";

/** The manager, as far as the edge uses it. */
export interface Backend {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  /** Of this manager. */
  readonly nodeId: string;
}

/** The manager, and what the edge itself remembers. */
interface RememberingBackend extends Backend {
  readonly execs: Execs;
  readonly attachments: Attachments;
}

/** The largest body, in bytes: a config of 1,000 KB in base64, and room for the rest. A larger one is refused with 413. */
export const bodyBytesMax = 4 * 1024 * 1024;
/** Time for a whole request, in milliseconds. */
export const requestTimeoutMs = 60_000;
/**
 * Time that a list may be written without letting other events run, in milliseconds. Garbage collection adds up to 20 ms with 20,000 tasks:
 * their sum is to be below 25.
 */
const turnMsMax = 2;
/** How much text of a list is gathered for one write, in characters. */
const pieceChars = 64 * 1024;

export interface DockerRequest {
  readonly backend: RememberingBackend;
  /** Of the API, such as `1.41`. */
  readonly version: string;
  /** The variable part of the path. */
  readonly name: string;
  readonly query: URLSearchParams;
  readonly message: IncomingMessage;
  readonly response: ServerResponse;
  /** Null if the client did not ask for one. */
  readonly upgrade: Upgrade | null;
  readonly calls: OwnCalls;
  /** Aborts when the client is gone. */
  readonly signal: AbortSignal;
}

/** The answer; null if the handler has written it, or will. */
export type Answer = { readonly status: number; readonly body?: unknown } | null;
export type Handler = (request: DockerRequest) => Promise<Answer> | Answer;

export function ok(body?: unknown): Answer {
  return { status: 200, body };
}

/** Whether answers have the words of engines before 23.0. */
export function hasOldWords({ version }: Pick<DockerRequest, "version">): boolean {
  return isOlder(version, "1.42");
}

/** Throws Failure. Engines before 23.0 do not classify the error of filters that cannot be read, except with `status` 400. */
export function filtersOf(request: DockerRequest, status: 400 | 500 = 500): Filters {
  return parseFilters(request.query.get("filters"), hasOldWords(request) ? { status } : null);
}

/** The text of the body. Rejects with Failure. */
async function textOf({ message, upgrade }: DockerRequest): Promise<string> {
  if (upgrade !== null) return upgrade.body(bodyBytesMax, requestTimeoutMs);
  const declared = Number(message.headers["content-length"] ?? 0);
  const chunks: Buffer[] = [];
  let size = 0;
  if (declared <= bodyBytesMax) {
    for await (const chunk of message as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > bodyBytesMax) break;
      chunks.push(chunk);
    }
    if (size <= bodyBytesMax) return Buffer.concat(chunks).toString("utf8");
  }
  throw tooLarge(bodyBytesMax);
}

/** The body as a value that its table accepts. Rejects with Failure. An absent one is an empty struct for engines since 23.0. */
export async function bodyOf(request: DockerRequest, shape: Shape<unknown>): Promise<Json> {
  const text = await textOf(request);
  const isTyped = text !== "" || request.message.headers["content-type"] !== undefined;
  // Engines since 23.0 demand it of every body.
  if (isTyped && !hasOldWords(request)) demandJson(request);
  if (text.trim() !== "") return read(request, shape, text);
  if (text === "" && !hasOldWords(request)) return {};
  throw unreadable(request, "got EOF while reading request body");
}

function read(request: DockerRequest, shape: Shape<unknown>, text: string): Json {
  try {
    return check(shape, parseJson(text));
  } catch (error) {
    throw error instanceof Failure ? unreadable(request, error.message) : error;
  }
}

function unreadable(request: DockerRequest, reason: string): Failure {
  return badRequest(hasOldWords(request) ? reason : `invalid JSON: ${reason}`);
}

/** The body of a request that may have none. Rejects with Failure. */
export async function optionalBodyOf(request: DockerRequest, shape: Shape<unknown>): Promise<Json> {
  const text = await textOf(request);
  return text.trim() === "" ? {} : read(request, shape, text);
}

/** For the routes where a stock engine demands it. Throws Failure. */
export function demandJson(request: DockerRequest): void {
  const given = request.message.headers["content-type"] ?? "";
  const type = given.split(";", 1)[0]?.trim().toLowerCase();
  if (type === "application/json") return;
  throw badRequest(
    hasOldWords(request)
      ? `Content-Type specified (${given}) must be 'application/json'`
      : `unsupported Content-Type header (${given}): must be 'application/json'`,
  );
}

/** Resolves when more can be written; false if the client is gone. */
export function drained(response: ServerResponse): Promise<boolean> {
  return new Promise((resolve) => {
    const finish = (isOpen: boolean) => (): void => {
      response.off("drain", onDrain).off("close", onClose);
      resolve(isOpen);
    };
    const [onDrain, onClose] = [finish(true), finish(false)];
    response.once("drain", onDrain).once("close", onClose);
  });
}

/**
 * Writes a list without building its whole text: other events run in between, and a slow client is waited for. `before` and
 * `after`: the rest of a text of which it is a part.
 */
export async function writeList<Item>(
  { response }: DockerRequest,
  items: Iterable<Item>,
  objectOf: (item: Item) => unknown,
  [before, after]: readonly [before: string, after: string] = ["", ""],
): Promise<null> {
  response.writeHead(200, { "content-type": "application/json" });
  let piece = `${before}[`;
  let isFirst = true;
  // The list was made in this turn.
  let turnEnds = performance.now();
  for (const item of items) {
    piece += isFirst ? jsonTextOf(objectOf(item)) : `,${jsonTextOf(objectOf(item))}`;
    isFirst = false;
    const isTurnOver = performance.now() > turnEnds;
    if (piece.length >= pieceChars) {
      const hasRoom = response.write(piece);
      piece = "";
      if (!hasRoom && !(await drained(response))) return null;
    }
    if (!isTurnOver) continue;
    await new Promise((resolve) => setImmediate(resolve));
    if (response.destroyed) return null;
    turnEnds = performance.now() + turnMsMax;
  }
  response.end(`${piece}]${after}\n`);
  return null;
}
