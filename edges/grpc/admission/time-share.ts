/**
 * The share of the event loop's time that a class of peers may use. A peer that is read while the share is used up is not
 * read again until its turn comes; meanwhile the kernel, and then the peer, buffer what it sends.
 *
 * T1: in the long run these peers take no more than their share, whatever they send; none is refused because of it.
 */

interface Readable {
  pause(): unknown;
  resume(): unknown;
}

/** How often waiting peers get time back, in milliseconds, and how many of them are read then. */
const turnMs = 20;
const readPerTurn = 16;

export class TimeShare {
  readonly #share: number;
  readonly #burstMs: number;
  readonly #now: () => number;
  readonly #onPaused: () => void;
  #leftMs: number;
  #filledAt: number;
  readonly #waiting = new Set<Readable>();
  #timer: NodeJS.Timeout | null = null;

  /** `share` is a fraction of 1. `onPaused` is called when a peer starts to wait. */
  constructor(
    limits: { readonly share: number; readonly burstMs: number },
    onPaused: () => void = () => undefined,
    now: () => number = () => performance.now(),
  ) {
    this.#share = limits.share;
    this.#burstMs = limits.burstMs;
    this.#onPaused = onPaused;
    this.#now = now;
    this.#leftMs = limits.burstMs;
    this.#filledAt = now();
  }

  /** The number of peers that wait to be read. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Runs the work that a peer's bytes cause, and counts its time. */
  run(peer: Readable, work: () => void): void {
    const begun = this.#now();
    try {
      work();
    } finally {
      this.#leftMs -= this.#now() - begun;
      if (this.#leftMs < 0) this.#fill();
      if (this.#leftMs < 0) this.#wait(peer);
    }
  }

  /** The peer has disconnected or authenticated. */
  release(peer: Readable): void {
    if (this.#waiting.delete(peer)) peer.resume();
  }

  #fill(): void {
    const now = this.#now();
    this.#leftMs = Math.min(this.#burstMs, this.#leftMs + (now - this.#filledAt) * this.#share);
    this.#filledAt = now;
  }

  #wait(peer: Readable): void {
    if (this.#waiting.has(peer)) return;
    this.#waiting.add(peer);
    this.#onPaused();
    peer.pause();
    this.#timer ??= setInterval(() => this.#turn(), turnMs).unref();
  }

  #turn(): void {
    this.#fill();
    let read = 0;
    for (const peer of this.#waiting) {
      if (this.#leftMs < 0 || read === readPerTurn) break;
      this.#waiting.delete(peer);
      peer.resume();
      read += 1;
    }
    if (this.#waiting.size > 0 || this.#timer === null) return;
    clearInterval(this.#timer);
    this.#timer = null;
  }
}
