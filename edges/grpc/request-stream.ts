/** The messages of a client stream, waiting for a handler that takes them one by one. */
import type { RpcError } from "../../runtime/rpc.ts";

/** How many messages, or how many bytes of them, may wait before the peer is told to stop sending. */
const waitingMax = 64;
const waitingBytesMax = 1024 * 1024;

/** What the queue tells the stream that feeds it. */
export interface FlowControl {
  pause(): void;
  resume(): void;
  /** A handler took a message: fewer bytes wait. */
  taken(): void;
}

export class RequestStream<Message> implements AsyncIterable<Message> {
  readonly #flow: FlowControl;
  readonly #waiting: { readonly message: Message; readonly bytes: number }[] = [];
  #waitingBytes = 0;
  #isPaused = false;
  #end: "open" | "ended" | RpcError = "open";
  #wake: (() => void) | null = null;

  constructor(flow: FlowControl) {
    this.#flow = flow;
  }

  /** Bytes of the messages that wait. */
  get waitingBytes(): number {
    return this.#waitingBytes;
  }

  push(message: Message, bytes: number): void {
    if (this.#end !== "open") return;
    this.#waiting.push({ message, bytes });
    this.#waitingBytes += bytes;
    if (!this.#isPaused && (this.#waiting.length >= waitingMax || this.#waitingBytes >= waitingBytesMax)) {
      this.#isPaused = true;
      this.#flow.pause();
    }
    this.#wake?.();
  }

  /** The peer has sent everything; or, with an error, will send no more. */
  end(error: RpcError | null): void {
    if (this.#end !== "open") return;
    this.#end = error ?? "ended";
    this.#wake?.();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Message, void> {
    for (;;) {
      const next = this.#waiting.shift();
      if (next !== undefined) {
        this.#waitingBytes -= next.bytes;
        this.#flow.taken();
        if (this.#isPaused && this.#waiting.length <= waitingMax / 2 && this.#waitingBytes <= waitingBytesMax / 2) {
          this.#isPaused = false;
          this.#flow.resume();
        }
        yield next.message;
        continue;
      }
      if (this.#end === "ended") return;
      if (this.#end !== "open") throw this.#end;
      await new Promise<void>((resolve) => (this.#wake = resolve));
      this.#wake = null;
    }
  }
}
