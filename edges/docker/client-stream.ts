/**
 * The connection of a request that continues as a stream of bytes in both directions, as those of `docker exec` and
 * `docker attach` do: after an upgrade of HTTP/1.1, which every client of today asks for, or else as a plain answer, to which the
 * client cannot send anything.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { badRequest, Failure } from "./failure.ts";

/** Time for a client to read the rest of a stream that has ended and to close its side; then the connection is closed, in milliseconds. */
export const lingerMs = 10_000;

export interface ClientStream {
  write(data: Uint8Array): void;
  /** Bytes that the client has not read yet. */
  waitingBytes(): number;
  end(): void;
  /** The bytes from the client, and their end; null if it cannot send. */
  readonly input: Duplex | null;
}

/** A request with the header `Upgrade`. Node leaves its body on the connection. */
export class Upgrade {
  readonly #message: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #socket: Duplex;

  /** `head`: what was read of the connection beyond the headers. */
  constructor(message: IncomingMessage, response: ServerResponse, socket: Duplex, head: Buffer) {
    this.#message = message;
    this.#response = response;
    this.#socket = socket;
    if (head.length > 0) socket.unshift(head);
  }

  /** Rejects with Failure if it is too large, has no known length, or has not arrived after that time. */
  async body(bytesMax: number, timeoutMs: number): Promise<string> {
    const { headers } = this.#message;
    if (headers["transfer-encoding"] !== undefined)
      throw badRequest("the body of a request to upgrade needs a Content-Length");
    const length = Number(headers["content-length"] ?? 0);
    if (length === 0) return "";
    if (length > bytesMax) throw tooLarge(bytesMax);
    const socket = this.#socket;
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        clearTimeout(timer);
        socket.off("readable", look).off("end", look).off("close", look);
      };
      const look = (): void => {
        const data = socket.read(length) as Buffer | null;
        if (data === null && !socket.readableEnded && !socket.destroyed) return;
        leave();
        if (data === null || data.length < length) reject(badRequest("unexpected EOF"));
        else resolve(data.toString("utf8"));
      };
      const timer = setTimeout(() => {
        leave();
        reject(new Failure(408, `the request body did not arrive within ${timeoutMs / 1_000} s`));
      }, timeoutMs);
      socket.on("readable", look).on("end", look).on("close", look);
      look();
    });
  }

  /** Answers the request with 101. The response must not be used afterwards. */
  begin(contentType: string): ClientStream {
    const [socket, response] = [this.#socket, this.#response];
    const protocol = this.#message.headers.upgrade ?? "tcp";
    const headers = Object.entries(response.getHeaders()).map(([name, value]) => `${name}: ${String(value)}\r\n`);
    response.detachSocket(socket as Parameters<ServerResponse["detachSocket"]>[0]);
    socket.write(
      `HTTP/1.1 101 UPGRADED\r\nContent-Type: ${contentType}\r\nConnection: Upgrade\r\nUpgrade: ${protocol}\r\n` +
        `${headers.join("")}\r\n`,
    );
    return {
      write: (data) => void (socket.writable && socket.write(data)),
      waitingBytes: () => socket.writableLength,
      end() {
        // Late input is read: a connection that is closed with input unread loses its output.
        socket.resume();
        socket.end(() => {
          const timer = setTimeout(() => socket.destroy(), lingerMs);
          socket.once("close", () => clearTimeout(timer));
        });
      },
      input: socket,
    };
  }
}

export function tooLarge(bytesMax: number): Failure {
  return new Failure(413, `request body too large: this manager reads at most ${bytesMax} bytes`);
}

/** Begins the stream of a request, after which it cannot be refused any more. */
export function beginStream(upgrade: Upgrade | null, response: ServerResponse, contentType: string): ClientStream {
  if (upgrade !== null) return upgrade.begin(contentType);
  response.writeHead(200, { "content-type": contentType });
  response.flushHeaders();
  return {
    write: (data) => void (response.writable && response.write(data)),
    waitingBytes: () => response.writableLength,
    end: () => void response.end(),
    input: null,
  };
}
