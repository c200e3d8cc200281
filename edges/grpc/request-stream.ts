/** The messages of a client stream, queued until the handler takes them one by one. */
import type { RpcError } from "../../runtime/ports/rpc.ts";

/** Queued messages, or bytes of them, above which the peer must stop sending. */
const waitingMax = 64;
const waitingBytesMax = 1024 * 1024;

/** Notifications to the stream that feeds the queue. */
export interface FlowControl {
  pause(): void;
  resume(): void;
  /** A handler took a message, so fewer bytes are queued. */
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

  /** Bytes of the queued messages. */
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

  /** The peer has sent everything, or with an error will send no more. */
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
