/**
 * Connections to the TLS ports for HTTP/1.1 and WebSockets whose clients have not logged in.
 *
 * HS1: they are limited in number, and never displace one that has logged in.
 * HS2: unfinished requests count in `anonymousBytes`, and the time for requests in `anonymousTime`: when it is used up, the next
 *      request of a connection waits.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { sourceOf } from "../../../runtime/source-of.ts";
import type { Admission } from "./admission.ts";
import type { ByteHolder } from "./byte-budget.ts";
import { Crowd, type Member } from "./crowd.ts";
import type { Port, RefusalReason } from "./refusals.ts";

/**
 * Each byte counts this many times: a message of a WebSocket may come in fragments of one byte, each of which costs its header and
 * about 150 bytes of memory, and a request may have thousands of short headers.
 */
export const strangersFactor = 8;
/** As much as is kept of a request: 16 KiB of headers (Node's `maxHeaderSize`) and 16 KiB of its body (`bodyBytesMax`). */
const heldBytesMax = 32 * 1024;

class Stranger implements Member, ByteHolder {
  readonly socket: TLSSocket;
  readonly source: string;
  readonly #admission: Admission;
  readonly #port: Port;
  readonly #onData = (chunk: Buffer): void => this.#hold(this.#bytes + chunk.length);
  #bytes = 0;
  #answering: { readonly request: IncomingMessage; readonly response: ServerResponse } | null = null;
  #isPaused = false;
  /** The request that waits for the time of strangers. */
  #waiting: (() => void) | null = null;

  constructor(socket: TLSSocket, admission: Admission, port: Port) {
    this.socket = socket;
    this.source = sourceOf(socket.remoteAddress ?? "");
    this.#admission = admission;
    this.#port = port;
    // Before Node's own listener, so that a request's bytes are counted before its answer releases them.
    socket.prependListener("data", this.#onData);
  }

  /** A whole request waits for its answer. */
  get isServed(): boolean {
    return this.#answering?.request.complete === true;
  }

  handle(request: IncomingMessage, response: ServerResponse, work: () => void, isKnown: boolean): void {
    // Clients of these ports wait for each answer; a queue of requests would have no limit.
    if (this.#answering?.response.writableEnded === false) return this.end("protocol");
    this.#answering = { request, response };
    response.once("close", () => {
      if (this.#answering?.response !== response) return;
      this.#answering = null;
      this.#hold(0);
    });
    if (isKnown) work();
    else if (this.#isPaused) this.#waiting = work;
    else this.#admission.anonymousTime.run(this, work);
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    const work = this.#waiting;
    this.#waiting = null;
    if (work !== null) this.#admission.anonymousTime.run(this, work);
  }

  relieve(): void {
    this.end("anonymous-bytes");
  }

  end(reason: RefusalReason): void {
    this.#admission.refusals.count(this.#port, reason, this.socket.remoteAddress ?? this.source);
    this.socket.destroy();
  }

  /** No further request comes over this connection. */
  leave(): void {
    this.socket.removeListener("data", this.#onData);
    this.#waiting = null;
    this.#admission.anonymousTime.release(this);
    this.#admission.anonymousBytes.set(this, 0);
  }

  #hold(bytes: number): void {
    this.#bytes = Math.min(bytes, heldBytesMax);
    if (!this.socket.destroyed) this.#admission.anonymousBytes.set(this, strangersFactor * this.#bytes);
  }
}

export class HttpStrangers {
  readonly #admission: Admission;
  readonly #port: Port;
  readonly #crowd: Crowd<Stranger>;
  readonly #bySocket = new WeakMap<Duplex, Stranger>();

  constructor(admission: Admission, port: Port) {
    this.#admission = admission;
    this.#port = port;
    this.#crowd = new Crowd(admission.limits.anonymousMax);
  }

  /** A connection whose handshake is complete. */
  add(socket: TLSSocket): void {
    const stranger = new Stranger(socket, this.#admission, this.#port);
    this.#bySocket.set(socket, stranger);
    socket.once("close", () => {
      stranger.leave();
      this.welcome(socket);
    });
    const { anonymousPerAddressMax } = this.#admission.limits;
    this.#crowd.add(stranger.source, stranger, anonymousPerAddressMax)?.end("anonymous-limit");
  }

  /** Handles a request of a connection in its turn. `isKnown`: it shows a login, so its time is not that of strangers. */
  handle(request: IncomingMessage, response: ServerResponse, work: () => void, isKnown = false): void {
    const stranger = this.#bySocket.get(request.socket);
    if (stranger === undefined) work();
    else stranger.handle(request, response, work, isKnown);
  }

  /** The connection has become a WebSocket, which has limits of its own; it stays a stranger's. */
  upgraded(socket: Duplex): void {
    this.#bySocket.get(socket)?.leave();
  }

  /** The connection counts as one of a user from now on. */
  welcome(socket: Duplex): void {
    const stranger = this.#bySocket.get(socket);
    if (stranger !== undefined) this.#crowd.remove(stranger.source, stranger);
  }

  /** Displaces another connection in favor of this one, which is among them; false if there is none. */
  makeRoomFor(socket: Duplex): boolean {
    const displaced = this.#crowd.size > 1 ? this.#crowd.displace() : null;
    if (displaced === null || displaced.socket === socket) return false;
    displaced.end("anonymous-limit");
    return true;
  }
}
