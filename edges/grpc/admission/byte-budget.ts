/**
 * A budget for the bytes of unfinished requests that many connections hold together.
 *
 * B1: the sum stays within the limit: a connection that would exceed it makes the connection that holds the most end.
 */

export interface ByteHolder {
  /** Ends this holder, which releases its bytes. */
  relieve(): void;
}

export class ByteBudget {
  readonly #bytesMax: number;
  readonly #holders = new Map<ByteHolder, number>();
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** Bytes held now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Records how many bytes a holder holds now. */
  set(holder: ByteHolder, bytes: number): void {
    const before = this.#holders.get(holder) ?? 0;
    if (bytes === before) return;
    this.#bytes += bytes - before;
    if (bytes === 0) this.#holders.delete(holder);
    else this.#holders.set(holder, bytes);
    while (this.#bytes > this.#bytesMax) {
      const largest = this.#largest();
      if (largest === null) return;
      // Before it ends, since ending may call this method again.
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
