/** What an orchestrator has to look at: the places of its service (slots or nodes) that were touched, and when something is due. */
export class Attention<Place> {
  /** Null: all of them. */
  #places: Set<Place> | null = null;
  /** In milliseconds since the epoch; null: nothing is due by itself. */
  #dueMs: number | null = null;

  add(place: Place): void {
    this.#places?.add(place);
  }

  addAll(): void {
    this.#places = null;
  }

  /** What is to be looked at now; null: all places. */
  take(nowMs: number): ReadonlySet<Place> | null {
    const isDue = this.#dueMs !== null && this.#dueMs <= nowMs;
    const places = isDue ? null : this.#places;
    this.#places = new Set();
    return places;
  }

  /** `lookAgainMs`: what the decision on `places` waits for; what the others do is still to come. Answers milliseconds from now; -1: nothing is due. */
  waitUntil(lookAgainMs: number | null, places: ReadonlySet<Place> | null, nowMs: number): number {
    const waits = [places === null ? null : this.#dueMs, lookAgainMs].filter((time) => time !== null);
    this.#dueMs = waits.length === 0 ? null : Math.min(...waits);
    return this.#dueMs === null ? -1 : Math.max(0, Math.ceil(this.#dueMs - nowMs));
  }
}
