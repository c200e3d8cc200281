/**
 * Pending requests of one link, all answered on one inbox. Our own rather than the library's, because requests of a lost
 * connection must fail immediately (the library lets them time out), and because every append takes this path.
 *
 * Q1: each request ends exactly once: by its answer, its deadline or the loss of its connection.
 */
import { createInbox, type Msg } from "nats";

export type Answer =
  | { readonly kind: "reply"; readonly message: Msg }
  | { readonly kind: "no-responders" }
  | { readonly kind: "timeout" }
  | { readonly kind: "closed" };

interface Pending {
  readonly resolve: (answer: Answer) => void;
  readonly timer: NodeJS.Timeout;
}

export class Requests {
  readonly #inbox = `${createInbox()}.`;
  readonly #pending = new Map<string, Pending>();
  #count = 0;

  /** The subject to subscribe to, passing each message to `take`. */
  get subject(): string {
    return `${this.#inbox}*`;
  }

  /** `send` gets the reply subject; if it throws, the request ends as `closed`. */
  start(timeoutMs: number, send: (reply: string) => void): Promise<Answer> {
    return new Promise((resolve) => {
      const token = (this.#count++).toString(36);
      const timer = setTimeout(() => this.#finish(token, { kind: "timeout" }), timeoutMs);
      this.#pending.set(token, { resolve, timer });
      try {
        send(this.#inbox + token);
      } catch {
        // The connection has just closed; earlier messages may have been sent.
        this.#finish(token, { kind: "closed" });
      }
    });
  }

  take(message: Msg): void {
    // The server's own answer for "no responders": no payload, and status 503 in the headers.
    const nobody = message.data.length === 0 && message.headers?.code === 503;
    this.#finish(
      message.subject.slice(this.#inbox.length),
      nobody ? { kind: "no-responders" } : { kind: "reply", message },
    );
  }

  closeAll(): void {
    for (const token of this.#pending.keys()) this.#finish(token, { kind: "closed" });
  }

  #finish(token: string, answer: Answer): void {
    const pending = this.#pending.get(token);
    if (pending === undefined) return;
    this.#pending.delete(token);
    clearTimeout(pending.timer);
    pending.resolve(answer);
  }
}
