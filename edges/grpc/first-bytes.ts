/**
 * Connections that have sent nothing yet. Each is handed on when its first bytes arrive, which remain to be read.
 *
 * B1: a connection is handed on once, unless it is closed first: when it stays silent for too long, or with the listener.
 */
import type { Duplex } from "node:stream";

export class FirstBytes<Socket extends Duplex> {
  readonly #timeoutMs: number;
  readonly #onComplete: (socket: Socket, head: Buffer) => void;
  readonly #silent = new Set<Socket>();

  /** `onSpoken` also gets the first bytes, at least one. */
  constructor(timeoutMs: number, onComplete: (socket: Socket, head: Buffer) => void) {
    this.#timeoutMs = timeoutMs;
    this.#onComplete = onComplete;
  }

  await(socket: Socket): void {
    this.#silent.add(socket);
    const giveUp = (): void => void socket.destroy();
    const timer = setTimeout(giveUp, this.#timeoutMs);
    const forget = (): void => {
      clearTimeout(timer);
      this.#silent.delete(socket);
    };
    socket.once("close", forget).once("error", giveUp);
    // Not `data`: the bytes must be put back, and a flowing stream would emit them again before anybody listens.
    socket.once("readable", () => {
      const head = socket.read() as Buffer | null;
      if (head === null) return; // it ended or failed; `close` follows
      socket.off("close", forget).off("error", giveUp);
      forget();
      socket.unshift(head);
      this.#onComplete(socket, head);
    });
  }

  close(): void {
    for (const socket of this.#silent) socket.destroy();
  }
}
