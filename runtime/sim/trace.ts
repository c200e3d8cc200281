/**
 * The trace of a simulation, as lines of text: two runs of one seed must give the same lines. The hash of all lines is always
 * kept; the lines themselves only on request, because they use memory.
 */
import { createHash } from "node:crypto";
import { SimClock } from "./clock.ts";

export class SimTrace {
  readonly #clock: SimClock;
  readonly #hash = createHash("sha256");
  readonly #isDropped: boolean;
  readonly #lines: string[] | null;
  readonly #marks = new Map<string, number>();
  #count = 0;
  #digest: string | null = null;

  /**
   * Without a clock, all lines say 0: for tests that examine something else. `dropLines`: not even hashed, for runs whose trace
   * nobody compares.
   */
  constructor(
    clock: SimClock = new SimClock(),
    options: { readonly keepLines: boolean; readonly dropLines?: boolean } = { keepLines: false },
  ) {
    this.#clock = clock;
    this.#isDropped = !options.keepLines && options.dropLines === true;
    this.#lines = options.keepLines ? [] : null;
  }

  /** True if lines are kept, so that detail for readers is worth writing. */
  get isKept(): boolean {
    return this.#lines !== null;
  }

  /** True if lines are neither kept nor hashed, so that composing one is of no use. */
  get isDropped(): boolean {
    return this.#isDropped;
  }

  write(who: string, what: string): void {
    if (this.#isDropped) return;
    const line = `${this.#clock.elapsed.toFixed(3)} ${who} ${what}`;
    this.#hash.update(line).update("\n");
    this.#count += 1;
    this.#lines?.push(line);
  }

  /** Records that a rare branch was reached. */
  mark(name: string): void {
    this.#marks.set(name, (this.#marks.get(name) ?? 0) + 1);
  }

  get marks(): ReadonlyMap<string, number> {
    return this.#marks;
  }

  get count(): number {
    return this.#count;
  }

  /** Hexadecimal SHA-256 of all lines; nothing may be written afterwards. */
  digest(): string {
    this.#digest ??= this.#hash.digest("hex");
    return this.#digest;
  }

  /** Empty if lines are not kept. */
  text(): string {
    return this.#lines === null || this.#lines.length === 0 ? "" : `${this.#lines.join("\n")}\n`;
  }
}
