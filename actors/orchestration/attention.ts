/** An orchestrator's list of work: the touched places of its service (slots or nodes), and the next due time. */
import { msUntil } from "../../machines/reconcile.ts";

export class Attention<Place> {
  /** Null: all places. */
  #places: Set<Place> | null = null;
  /** In milliseconds since the epoch; null: no due time. */
  #dueMs: number | null = null;

  add(place: Place): void {
    this.#places?.add(place);
  }

  addAll(): void {
    this.#places = null;
  }

  /** The places to check now; null: all places. */
  take(nowMs: number): ReadonlySet<Place> | null {
    const isDue = this.#dueMs !== null && this.#dueMs <= nowMs;
    const places = isDue ? null : this.#places;
    this.#places = new Set();
    return places;
  }

  /**
   * `lookAgainMs`: when the decision on `places` is due again; other places keep their due time. Returns milliseconds from now;
   * -1: nothing is due.
   */
  waitUntil(lookAgainMs: number | null, places: ReadonlySet<Place> | null, nowMs: number): number {
    const waits = [places === null ? null : this.#dueMs, lookAgainMs].filter((time) => time !== null);
    this.#dueMs = waits.length === 0 ? null : Math.min(...waits);
    return msUntil(this.#dueMs, nowMs);
  }
}
