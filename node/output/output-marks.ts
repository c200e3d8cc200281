/** When the bytes of an output file were written, as near as its marks tell: between two marks, in proportion. */
export class OutputMarks {
  readonly #times: number[] = [];
  readonly #sizes: number[] = [];

  /** `endMs`, `endSize`: the newest that is known of the file, behind the last mark. A mark that goes back is no mark. */
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

  /** About when the file grew to `size` bytes: milliseconds since the epoch, growing with the size. */
  timeOf(size: number): number {
    const after = this.#after(size);
    const [fromMs, fromSize] = [this.#times[after - 1], this.#sizes[after - 1]];
    const [toMs = 0, toSize = 0] = [this.#times[after], this.#sizes[after]];
    if (fromMs === undefined || fromSize === undefined || toSize === fromSize || size >= toSize) return toMs;
    return fromMs + ((toMs - fromMs) * (size - fromSize)) / (toSize - fromSize);
  }

  /** When it had, at the latest. */
  latestOf(size: number): number {
    return this.#times[this.#after(size)] ?? 0;
  }

  /** The first mark that found it as large; the last when none did. */
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
