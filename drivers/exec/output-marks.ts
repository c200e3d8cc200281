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

  /** About when the byte at `offset` was written: milliseconds since the epoch, growing with the offset. */
  timeAt(offset: number): number {
    const after = this.#after(offset);
    const [fromMs, fromSize] = [this.#times[after - 1], this.#sizes[after - 1]];
    const [toMs = 0, toSize = 0] = [this.#times[after], this.#sizes[after]];
    if (fromMs === undefined || fromSize === undefined || toSize === fromSize) return toMs;
    return fromMs + ((toMs - fromMs) * (offset - fromSize)) / (toSize - fromSize);
  }

  /** When it was written at the latest. */
  latestAt(offset: number): number {
    return this.#times[this.#after(offset)] ?? 0;
  }

  /** The first mark that is behind the byte; the last when none is. */
  #after(offset: number): number {
    let low = 0;
    let high = this.#sizes.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#sizes[middle] as number) > offset) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}
