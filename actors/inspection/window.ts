/**
 * The publications of a manager to a listener at another manager that the listener has not acknowledged, and their limit. NATS itself does not hold
 * back a publisher.
 */

/** Maximum unacknowledged bytes; one flush of the feed more is possible. Beyond: the feed counts the listener as slow. */
const windowBytesMax = 1024 * 1024;
/** Bytes after which a listener with room acknowledges: often enough that the window stays open. */
export const takenBytes = 128 * 1024;

export class FeedWindow {
  /** Publications without acknowledgement, by number. */
  readonly #sizes = new Map<number, number>();
  #bytes = 0;
  #number = 0;

  get isOpen(): boolean {
    return this.#bytes <= windowBytesMax;
  }

  /** Number of the next publication. */
  next(): number {
    return (this.#number += 1);
  }

  sent(number: number, bytes: number): void {
    this.#sizes.set(number, bytes);
    this.#bytes += bytes;
  }

  /** Nothing is on its way any more, or it does not count. */
  reset(): void {
    this.#sizes.clear();
    this.#bytes = 0;
  }

  /** All up to `number` are acknowledged. */
  taken(number: number): void {
    for (const [each, bytes] of this.#sizes) {
      if (each > number) return;
      this.#sizes.delete(each);
      this.#bytes -= bytes;
    }
  }
}
