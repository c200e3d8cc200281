/** Progress of a rehearsal on standard error: one line that is redrawn on a terminal, else a line for each tenth of the seeds. */
import type { RunOutcome } from "../../simulation/rehearsal/outcome.ts";
import type { Shell } from "../shell.ts";

interface Wanted {
  readonly seeds: number;
  /** Simulated length of each. */
  readonly durationMs: number;
}

export class RunProgress {
  readonly #shell: Shell;
  readonly #wanted: Wanted;
  /** Simulated milliseconds so far of the seeds that run. */
  readonly #running = new Map<number, number>();
  #finished = 0;
  #violated = 0;
  #isDrawn = false;

  constructor(shell: Shell, wanted: Wanted) {
    this.#shell = shell;
    this.#wanted = wanted;
  }

  /** A seed has been run for this many simulated milliseconds. */
  show(seed: number, ranMs: number): void {
    this.#running.set(seed, ranMs);
    if (this.#shell.isInteractive) this.#draw();
  }

  finish({ seed, violation }: RunOutcome): void {
    this.#running.delete(seed);
    this.#finished += 1;
    if (violation !== null) this.#violated += 1;
    const { seeds } = this.#wanted;
    const tenths = (count: number): number => Math.floor((10 * count) / seeds);
    if (this.#shell.isInteractive) this.#draw();
    else if (tenths(this.#finished) > tenths(this.#finished - 1)) this.#shell.remark(this.#text());
  }

  /** Removes the line. */
  end(): void {
    if (this.#isDrawn) this.#write("\r\x1b[K");
  }

  #draw(): void {
    this.#isDrawn = true;
    this.#write(`\r${this.#text().slice(0, (this.#shell.width ?? 80) - 1)}\x1b[K`);
  }

  #write(text: string): void {
    void this.#shell.write(new TextEncoder().encode(text), "err");
  }

  #text(): string {
    const { durationMs, seeds } = this.#wanted;
    let ranMs = this.#finished * durationMs;
    for (const ms of this.#running.values()) ranMs += ms;
    const share = Math.floor((100 * ranMs) / (seeds * durationMs));
    const violated = this.#violated === 0 ? "" : `, ${this.#violated} with a violated invariant`;
    return `${this.#finished} of ${seeds} seeds, ${Math.min(share, 100)} %${violated}`;
  }
}
