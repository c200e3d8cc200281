/**
 * Whether the log is served: judged by what JetStream answers, not by pings, which a nats-server answers that can write no
 * more. Each kind of request is looked at by itself, since a stream may be dead while others live.
 *
 * J1: silence counts from the first request of a kind that stayed unanswered since the last answer to one of that kind; one
 *     or two are no silence.
 */

/** Two may be lost with a stream leader that was killed. */
const attemptsMin = 3;

interface Silence {
  readonly since: number;
  readonly attempts: number;
  readonly reason: string;
}

export class Serving {
  readonly #silences = new Map<string, Silence>();

  /** Why the last write was refused for want of space; null when it was not. */
  fullReason: string | null = null;

  /** The server's last answer said that JetStream is not enabled for the account of this link. */
  isOffForAccount = false;

  answered(kind: string): void {
    this.#silences.delete(kind);
  }

  /** `sentAt`: when the request was, in monotonic milliseconds. */
  unanswered(kind: string, sentAt: number, reason: string): void {
    const before = this.#silences.get(kind);
    this.#silences.set(kind, { since: before?.since ?? sentAt, attempts: (before?.attempts ?? 0) + 1, reason });
  }

  /** The longest silence, J1; null while all is served. */
  silence(now: number): { readonly ms: number; readonly reason: string } | null {
    let longest: { readonly ms: number; readonly reason: string } | null = null;
    for (const { since, attempts, reason } of this.#silences.values()) {
      if (attempts >= attemptsMin && now - since > (longest?.ms ?? 0)) longest = { ms: now - since, reason };
    }
    return longest;
  }
}
