/**
 * One page's WebSocket: its calls, in both directions (`proto/muster/v1/ui.proto`).
 *
 * PS1: each call ends with exactly one last message, unless the page has cancelled it or the connection ends.
 * PS2: unread messages of a page are bounded, and stop only its own calls.
 * PS3: the bytes that all pages hold together are bounded: the page that holds the most ends.
 * PS4: a page that takes some bytes of a long answer between two checks stays.
 */
import { randomBytes } from "node:crypto";
import type { Duplex } from "node:stream";
import type { WebSocket } from "ws";
import { UiHello, UiRequest, UiResponse } from "../../proto/gen/messages.ts";
import { decodedOrNull } from "../../proto/codec.ts";
import type { Logger } from "../../runtime/ports/index.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { ByteBudget, ByteHolder } from "../grpc/admission/byte-budget.ts";
import { writeInPieces } from "../juju/pieces.ts";
import { UnfinishedMessage } from "../juju/unfinished-message.ts";
import type { UiSession, UiSink } from "./backend.ts";
import * as defaults from "./limits.ts";

export type PageLimits = {
  readonly [
    Name in
      | "callsMax"
      | "requestBytesMax"
      | "waitingBytesMax"
      | "resumingBytes"
      | "unsentBytesMax"
      | "checkMs"
      | "pagesBytesMax"
      | "closeTimeoutMs"
  ]: number;
};

/** Close codes of RFC 6455; each reason is a sentence of at most 123 bytes. */
const close = { goingAway: 1001, notBinary: 1003, malformed: 1007, unexpected: 1008, again: 1012 } as const;
const reasonBytesMax = 123;

/** A sentence that fits into a close frame. */
function fitting(reason: string): string {
  let text = reason;
  while (Buffer.byteLength(text) > reasonBytesMax) text = `${text.slice(0, -2).trimEnd()}…`.replace(/……$/, "…");
  return text;
}

/** Ends a connection that a page may try again. */
export function closeForNow(websocket: WebSocket, reason: string): void {
  websocket.close(close.again, fitting(reason));
}

interface Call {
  readonly controller: AbortController;
  readonly requestBytes: number;
}

interface PageParts {
  readonly socket: Duplex;
  readonly log: Logger;
  /** Bytes that all pages of the process hold. */
  readonly bytes: ByteBudget;
  readonly limits?: PageLimits;
  /** PS3 */
  onRelieved?(): void;
}

export class PageSocket implements ByteHolder {
  readonly #websocket: WebSocket;
  readonly #session: UiSession;
  readonly #parts: PageParts;
  readonly #limits: PageLimits;
  readonly #pieces: ReturnType<typeof writeInPieces>;
  readonly #unfinished: UnfinishedMessage;
  readonly #calls = new Map<number, Call>();
  readonly #checks: NodeJS.Timeout;
  #requestBytes = 0;
  /** Bytes of messages that have not wholly left. */
  #unsentBytes = 0;
  /** Bytes of messages that have wholly left. */
  #sentBytes = 0;
  /** Bytes that had left at the last check. */
  #checkedBytes = 0;
  #wasUnsent = false;
  #isHeard = true;
  #isOver = false;
  #room: PromiseWithResolvers<void> | null = null;

  /** The WebSocket is open, and paused until now. */
  constructor(websocket: WebSocket, session: UiSession, parts: PageParts) {
    this.#websocket = websocket;
    this.#session = session;
    this.#parts = parts;
    const { socket, limits = defaults } = parts;
    this.#limits = limits;
    this.#pieces = writeInPieces(socket);
    this.#unfinished = new UnfinishedMessage(websocket, socket, () => this.#account());
    websocket.on("message", (data, isBinary) => this.#onMessage(data as Buffer, isBinary));
    websocket.on("pong", () => (this.#isHeard = true));
    // The library sends the right close code, and `close` follows.
    websocket.on("error", () => undefined);
    websocket.on("close", () => this.#onClose());
    this.#checks = setInterval(() => this.#check(), limits.checkMs).unref();
    session.backend.onEnded?.((reason) => this.end(reason));
    this.#send(UiResponse.create({ call: 0, hasMessage: true, message: UiHello.encode(session.hello) }));
    websocket.resume();
  }

  /** Ends every call with UNAVAILABLE, and the connection; the page connects again. */
  end(reason: string): void {
    for (const [id, call] of this.#calls) {
      this.#finish(id, call, Status.UNAVAILABLE, reason);
      call.controller.abort();
    }
    closeForNow(this.#websocket, reason);
  }

  /** The server stops. */
  leave(): void {
    this.#websocket.close(close.goingAway, "the server of the page is stopping");
  }

  /** PS3 */
  relieve(): void {
    this.#isOver = true;
    this.#parts.onRelieved?.();
    this.#websocket.terminate();
  }

  #account(): void {
    if (this.#isOver) return;
    const unsent = this.#unsentBytes - this.#pieces.takenBytes;
    this.#parts.bytes.set(this, this.#unfinished.bytes + this.#requestBytes + Math.max(0, unsent));
  }

  #onClose(): void {
    clearInterval(this.#checks);
    this.#isOver = true;
    this.#parts.bytes.set(this, 0);
    for (const { controller } of this.#calls.values()) controller.abort();
    this.#calls.clear();
    this.#room?.resolve();
    this.#session.backend.close?.();
  }

  #onMessage(data: Buffer, isBinary: boolean): void {
    this.#isHeard = true;
    this.#unfinished.completed();
    this.#account();
    if (this.#websocket.readyState !== this.#websocket.OPEN) return;
    if (!isBinary) return this.#websocket.close(close.notBinary, "messages of this connection are binary");
    const request = decodedOrNull(UiRequest, data);
    if (request === null) return this.#websocket.close(close.malformed, "malformed UiRequest");
    const { call: id, cancel, method, message } = request;
    if (id === 0) return this.#websocket.close(close.unexpected, "calls are numbered from 1");
    const known = this.#calls.get(id);
    if (cancel) {
      // It may have ended meanwhile.
      if (known === undefined) return;
      this.#drop(id, known);
      known.controller.abort();
      return;
    }
    if (known !== undefined) return this.#websocket.close(close.unexpected, `call ${id} is in progress already`);
    this.#start(id, method, message);
  }

  #start(id: number, method: string, message: Uint8Array): void {
    const { callsMax, requestBytesMax } = this.#limits;
    const call: Call = { controller: new AbortController(), requestBytes: message.length };
    if (this.#calls.size >= callsMax)
      return this.#sendEnd(id, Status.RESOURCE_EXHAUSTED, `a page can have at most ${callsMax} calls in progress`);
    if (this.#requestBytes + message.length > requestBytesMax)
      return this.#sendEnd(
        id,
        Status.RESOURCE_EXHAUSTED,
        `the requests of a page's calls in progress can have at most ${requestBytesMax} bytes`,
      );
    this.#calls.set(id, call);
    this.#requestBytes += message.length;
    this.#account();
    const traceId = randomBytes(16).toString("hex");
    const traceparent = `00-${traceId}-${randomBytes(8).toString("hex")}-01`;
    let shownTraceId = traceId;
    const sink: UiSink = {
      write: (answer) => {
        if (this.#calls.get(id) !== call) return null;
        if (this.#unsentBytes > this.#limits.unsentBytesMax) {
          this.#finish(id, call, Status.RESOURCE_EXHAUSTED, "the page reads too slowly", shownTraceId);
          call.controller.abort();
          return null;
        }
        this.#send(UiResponse.create({ call: id, hasMessage: true, message: answer, traceId: shownTraceId }));
        shownTraceId = "";
        return this.#waitForRoom();
      },
    };
    this.#session.backend.call(method, message, sink, { signal: call.controller.signal, traceparent }).then(
      () => this.#finish(id, call, Status.OK, "", shownTraceId),
      (error: unknown) => {
        if (error instanceof RpcError) return this.#finish(id, call, error.code, error.message, shownTraceId);
        this.#parts.log.error({ method, err: error }, "a call of the web interface failed");
        this.#finish(id, call, Status.INTERNAL, "internal error", shownTraceId);
      },
    );
  }

  /** PS1 */
  #finish(id: number, call: Call, status: Status, error: string, traceId = ""): void {
    if (this.#calls.get(id) !== call) return;
    this.#drop(id, call);
    this.#sendEnd(id, status, error, traceId);
  }

  #sendEnd(call: number, status: Status, error: string, traceId = ""): void {
    this.#send(UiResponse.create({ call, end: true, status, error, traceId }));
  }

  #drop(id: number, { requestBytes }: Call): void {
    this.#calls.delete(id);
    this.#requestBytes -= requestBytes;
    this.#account();
  }

  #send(response: UiResponse): void {
    const websocket = this.#websocket;
    if (websocket.readyState !== websocket.OPEN) return;
    const bytes = UiResponse.encode(response);
    this.#unsentBytes += bytes.length;
    websocket.send(bytes, () => {
      this.#unsentBytes -= bytes.length;
      this.#sentBytes += bytes.length;
      this.#account();
      if (this.#room === null || this.#unsentBytes > this.#limits.resumingBytes) return;
      const { resolve } = this.#room;
      this.#room = null;
      resolve();
    });
    this.#account();
  }

  /** PS2 */
  #waitForRoom(): Promise<void> | null {
    if (this.#room === null && this.#unsentBytes <= this.#limits.waitingBytesMax) return null;
    this.#room ??= Promise.withResolvers<void>();
    return this.#room.promise;
  }

  #check(): void {
    const left = this.#sentBytes + this.#pieces.takenBytes;
    const isAlive = this.#wasUnsent ? left !== this.#checkedBytes : this.#isHeard;
    if (!isAlive) return this.#websocket.terminate();
    this.#checkedBytes = left;
    this.#account();
    this.#wasUnsent = this.#unsentBytes > 0;
    // Behind a long answer, a ping would arrive after minutes.
    if (this.#wasUnsent) return;
    this.#isHeard = false;
    this.#websocket.ping();
  }
}
