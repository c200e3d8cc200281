/**
 * Whether the log is served: judged by JetStream's answers, not by pings, which a nats-server that can no longer write still
 * answers. Each kind of request counts separately, since a stream may be dead while others work.
 *
 * J1: silence counts from the first unanswered request of a kind since that kind's last answer; one or two unanswered requests
 *     do not count.
 */

/** A killed stream leader can lose two. */
const attemptsMin = 3;

interface Silence {
  readonly since: number;
  readonly attempts: number;
  readonly reason: string;
}

export class Serving {
  readonly #silences = new Map<string, Silence>();

  /** Why the last write was refused for lack of space; null if it was not. */
  fullReason: string | null = null;

  /** According to the server's last answer, JetStream is not enabled for this link's account. */
  isOffForAccount = false;

  answered(kind: string): void {
    this.#silences.delete(kind);
  }

  /** `sentAt`: when the request was sent, in monotonic milliseconds. */
  unanswered(kind: string, sentAt: number, reason: string): void {
    const before = this.#silences.get(kind);
    this.#silences.set(kind, { since: before?.since ?? sentAt, attempts: (before?.attempts ?? 0) + 1, reason });
  }

  /** The longest silence (J1); null while everything is served. */
  silence(now: number): { readonly ms: number; readonly reason: string } | null {
    let longest: { readonly ms: number; readonly reason: string } | null = null;
    for (const { since, attempts, reason } of this.#silences.values()) {
      if (attempts >= attemptsMin && now - since > (longest?.ms ?? 0)) longest = { ms: now - since, reason };
    }
    return longest;
  }
}
