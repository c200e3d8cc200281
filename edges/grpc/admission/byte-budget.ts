/**
 * Bytes that many connections hold together of what their peers have not finished.
 *
 * B1: the sum stays within the limit: when it would pass it, the connection that holds the most ends.
 */

export interface ByteHolder {
  /** Ends this holder, which gives its bytes back. */
  relieve(): void;
}

export class ByteBudget {
  readonly #bytesMax: number;
  readonly #holders = new Map<ByteHolder, number>();
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** Bytes that are held now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Notes how many bytes that holder holds now. */
  set(holder: ByteHolder, bytes: number): void {
    const before = this.#holders.get(holder) ?? 0;
    if (bytes === before) return;
    this.#bytes += bytes - before;
    if (bytes === 0) this.#holders.delete(holder);
    else this.#holders.set(holder, bytes);
    while (this.#bytes > this.#bytesMax) {
      const largest = this.#largest();
      if (largest === null) return;
      // Before it ends, which may come back here.
      this.set(largest, 0);
      largest.relieve();
    }
  }

  #largest(): ByteHolder | null {
    let largest: ByteHolder | null = null;
    let most = 0;
    for (const [holder, bytes] of this.#holders) {
      if (bytes <= most) continue;
      largest = holder;
      most = bytes;
    }
    return largest;
  }
}
