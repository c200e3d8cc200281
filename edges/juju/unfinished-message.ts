/** Counts the bytes that a peer has sent since its last complete message, before the WebSocket's reader stores them. */
import type { Duplex } from "node:stream";
import type { WebSocket } from "ws";

/** Header of a control frame, which is short, with its mask. */
const controlHeaderBytes = 6;

export class UnfinishedMessage {
  readonly #onChange: () => void;
  #bytes = 0;

  /** Create it before the reader's first message. `onChange` is not called by `completed`. */
  constructor(websocket: WebSocket, socket: Duplex, onChange: () => void) {
    this.#onChange = onChange;
    // Before the library's own listener, so that bytes are counted before it emits messages.
    socket.prependListener("data", (chunk: Buffer) => this.#set(this.#bytes + chunk.length));
    websocket.on("ping", (data) => this.#set(this.#bytes - data.length - controlHeaderBytes));
    websocket.on("pong", (data) => this.#set(this.#bytes - data.length - controlHeaderBytes));
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** The owner has a whole message. */
  completed(): void {
    this.#bytes = 0;
  }

  #set(bytes: number): void {
    this.#bytes = Math.max(0, bytes);
    this.#onChange();
  }
}
