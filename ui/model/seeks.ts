/**
 * Seeks of the time line: which places are loaded while a cursor is dragged faster than they can be.
 *
 * U3: at most one seek runs. The newest place is always loaded in the end.
 * U4: while dragging, a seek that runs is finished, and of the places since only the newest is loaded, so that the picture
 *     keeps moving; a place that is meant to stay cancels the seek that runs.
 */

export class Seeks<Place> {
  readonly #load: (place: Place, signal: AbortSignal) => Promise<void>;
  #running: AbortController | null = null;
  #next: { readonly place: Place } | null = null;

  /** `load` does not throw; it ends early when its signal is aborted. */
  constructor(load: (place: Place, signal: AbortSignal) => Promise<void>) {
    this.#load = load;
  }

  /** `isPassing`: the cursor is dragged, and will be elsewhere soon. */
  to(place: Place, isPassing: boolean): void {
    this.#next = { place };
    if (this.#running !== null) {
      if (!isPassing) this.#running.abort();
      return;
    }
    void this.#run();
  }

  cancel(): void {
    this.#next = null;
    this.#running?.abort();
  }

  async #run(): Promise<void> {
    while (this.#next !== null) {
      const { place } = this.#next;
      this.#next = null;
      const running = new AbortController();
      this.#running = running;
      await this.#load(place, running.signal);
      this.#running = null;
    }
  }
}
