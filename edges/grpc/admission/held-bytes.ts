/**
 * Reads a connection that waits for its handshake, so that its end is noticed: a stream that nobody reads never ends. It is then closed, also
 * one over a link, which its peer may end on one side. The bytes remain to be read.
 */
import type { Duplex } from "node:stream";

export class HeldBytes {
  readonly #socket: Duplex;
  readonly #take: (bytes: Buffer) => void;
  readonly #end: () => void;
  readonly #held: Buffer[] = [];

  /** `onTooMany` is called when the peer has sent more than `bytesMax`. */
  constructor(socket: Duplex, bytesMax: number, onTooMany: () => void) {
    let length = 0;
    this.#socket = socket;
    this.#take = (bytes) => {
      this.#held.push(bytes);
      length += bytes.length;
      if (length > bytesMax) onTooMany();
    };
    this.#end = () => void socket.destroy();
    socket.on("data", this.#take).on("end", this.#end);
  }

  /** Stops reading. */
  release(): void {
    this.#socket.off("data", this.#take).off("end", this.#end);
    // A stream that still flowed would emit the bytes again, before anybody listens.
    this.#socket.pause();
    if (this.#held.length > 0) this.#socket.unshift(Buffer.concat(this.#held));
  }
}
