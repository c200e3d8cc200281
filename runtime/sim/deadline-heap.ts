/**
 * Entries by deadline, those with the same deadline in the order of their numbers. The keys are kept in two arrays of numbers: comparing
 * entries that are spread over the heap took most of a simulated clock's time.
 *
 * DH1: entries leave in order, whatever was pushed, popped and dropped before.
 */
interface Timed {
  readonly deadline: number;
  readonly order: number;
}

/** Children of a place: four lie beside each other in memory, and make the heap half as deep as two. */
const width = 4;
const placesAtFirst = 64;

export class DeadlineHeap<Entry extends Timed> {
  readonly #entries: Entry[] = [];
  #deadlines = new Float64Array(placesAtFirst);
  #orders = new Float64Array(placesAtFirst);

  get size(): number {
    return this.#entries.length;
  }

  /** Deadline and order are read now, and must not change until the entry leaves. */
  push(entry: Entry): void {
    const at = this.#entries.length;
    if (at === this.#deadlines.length) this.#grow();
    this.#entries.push(entry);
    this.#raise(at, entry);
  }

  /** The first entry, removed; null if there is none with a deadline until `end`. */
  pop(end: number): Entry | null {
    const entries = this.#entries;
    const first = entries[0];
    if (first === undefined || (this.#deadlines[0] as number) > end) return null;
    const last = entries.pop() as Entry;
    if (entries.length > 0) this.#sink(0, last);
    return first;
  }

  /** Drops all entries but those that `keeps` names. */
  keep(keeps: (entry: Entry) => boolean): void {
    const kept = this.#entries.filter(keeps);
    this.#entries.length = 0;
    for (const entry of kept) this.push(entry);
  }

  #raise(from: number, entry: Entry): void {
    const { deadline, order } = entry;
    let at = from;
    while (at > 0) {
      const parent = Math.floor((at - 1) / width);
      if (this.#isBefore(parent, deadline, order)) break;
      this.#move(parent, at);
      at = parent;
    }
    this.#set(at, entry);
  }

  #sink(from: number, entry: Entry): void {
    const { deadline, order } = entry;
    const { length } = this.#entries;
    let at = from;
    for (;;) {
      const child = width * at + 1;
      if (child >= length) break;
      let least = child;
      const end = Math.min(child + width, length);
      for (let other = child + 1; other < end; other += 1)
        if (this.#isBefore(other, this.#deadlines[least] as number, this.#orders[least] as number)) least = other;
      if (!this.#isBefore(least, deadline, order)) break;
      this.#move(least, at);
      at = least;
    }
    this.#set(at, entry);
  }

  #isBefore(place: number, deadline: number, order: number): boolean {
    const own = this.#deadlines[place] as number;
    return own < deadline || (own === deadline && (this.#orders[place] as number) < order);
  }

  #move(from: number, to: number): void {
    this.#entries[to] = this.#entries[from] as Entry;
    this.#deadlines[to] = this.#deadlines[from] as number;
    this.#orders[to] = this.#orders[from] as number;
  }

  #set(at: number, entry: Entry): void {
    this.#entries[at] = entry;
    this.#deadlines[at] = entry.deadline;
    this.#orders[at] = entry.order;
  }

  #grow(): void {
    const deadlines = new Float64Array(2 * this.#deadlines.length);
    const orders = new Float64Array(deadlines.length);
    deadlines.set(this.#deadlines);
    orders.set(this.#orders);
    this.#deadlines = deadlines;
    this.#orders = orders;
  }
}
