/**
 * Connections that have said nothing yet. Each is handed on, with its first bytes still to be read, as soon as they are
 * there.
 *
 * B1: a connection is handed on once, and is closed before that when it says nothing for too long, or with the listener.
 */
import type { Socket } from "node:net";

export class FirstBytes {
  readonly #timeoutMs: number;
  readonly #onSpoken: (socket: Socket, head: Buffer) => void;
  readonly #silent = new Set<Socket>();

  /** `onSpoken` gets the first bytes as well, at least one. */
  constructor(timeoutMs: number, onSpoken: (socket: Socket, head: Buffer) => void) {
    this.#timeoutMs = timeoutMs;
    this.#onSpoken = onSpoken;
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
    // Not `data`: what was read has to go back, and a flowing stream would hand it out again before anybody listens.
    socket.once("readable", () => {
      const head = socket.read() as Buffer | null;
      if (head === null) return; // it ended, or failed: `close` follows
      socket.off("close", forget).off("error", giveUp);
      forget();
      socket.unshift(head);
      this.#onSpoken(socket, head);
    });
  }

  close(): void {
    for (const socket of this.#silent) socket.destroy();
  }
}
