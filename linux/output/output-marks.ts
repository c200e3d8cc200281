/** Estimates when the bytes of an output file were written: by interpolation between its marks. */
export class OutputMarks {
  readonly #times: number[] = [];
  readonly #sizes: number[] = [];

  /**
   * `endMs`, `endSize`: the latest known time and size of the file, after the last mark. Marks that go backwards are ignored.
   */
  constructor(text: string, endMs: number, endSize: number) {
    for (const line of text.split("\n")) {
      const [time, size] = line.split(" ").map(Number);
      if (time !== undefined && size !== undefined) this.#add(time, size);
    }
    this.#add(Math.max(endMs, this.#times.at(-1) ?? endMs), endSize);
  }

  #add(time: number, size: number): void {
    if (!Number.isFinite(time) || !Number.isFinite(size)) return;
    if (time < (this.#times.at(-1) ?? 0) || size < (this.#sizes.at(-1) ?? 0)) return;
    this.#times.push(time);
    this.#sizes.push(size);
  }

  /** Estimated time at which the file grew to `size` bytes: milliseconds since the epoch, increasing with the size. */
  timeOf(size: number): number {
    const after = this.#after(size);
    const [fromMs, fromSize] = [this.#times[after - 1], this.#sizes[after - 1]];
    const [toMs = 0, toSize = 0] = [this.#times[after], this.#sizes[after]];
    if (fromMs === undefined || fromSize === undefined || toSize === fromSize || size >= toSize) return toMs;
    return fromMs + ((toMs - fromMs) * (size - fromSize)) / (toSize - fromSize);
  }

  /** Latest time at which the file can have reached `size` bytes. */
  latestOf(size: number): number {
    return this.#times[this.#after(size)] ?? 0;
  }

  /** Index of the first mark at which the file was that large; otherwise of the last mark. */
  #after(size: number): number {
    let low = 0;
    let high = this.#sizes.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#sizes[middle] as number) >= size) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}
