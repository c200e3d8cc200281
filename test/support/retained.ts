/** Log and blobs of a test's manager: its appended records, its purged range, and its stored snapshots. */
import type { Retained } from "../../actors/watch/watch.ts";
import type { Clock, LogReader } from "../../runtime/ports/index.ts";
import type { TestManager } from "./manager.ts";

export class TestLog implements Retained {
  /** The first retained sequence. */
  first = 1;
  /** While false, neither the log nor the blobs answer. */
  isUp = true;
  readonly stored = new Map<string, Uint8Array>();
  readonly readings = new Set<LogReader>();
  /** The stored data itself: a test may change it. */
  readonly records: Uint8Array[];
  readonly #clock: Clock;

  constructor(records: Uint8Array[], clock: Clock) {
    this.records = records;
    this.#clock = clock;
  }

  readonly log: Retained["log"] = {
    recordBytesMax: 1_000_000,
    append: () => Promise.resolve({ kind: "conflict" }),
    bytes: () => Promise.resolve(null),
    space: () => "ample",
    purgeBefore: (sequence) => {
      this.first = sequence;
      return Promise.resolve();
    },
    bounds: () => Promise.resolve(this.isUp ? { first: this.first, last: this.records.length } : null),
    read: (from, reader) => {
      this.readings.add(reader);
      let next = from;
      // One record at a time, as over a network.
      const push = (): void => {
        if (!this.readings.has(reader)) return;
        if (next < this.first) {
          this.readings.delete(reader);
          reader.onGap(this.first);
          return;
        }
        const record = this.records[next - 1];
        if (record !== undefined && this.isUp) {
          next += 1;
          reader.onRecord(next - 1, record);
        }
        this.#clock.setTimeout(push, record === undefined ? 5 : 0.1);
      };
      this.#clock.setTimeout(push, 1);
      return { unsubscribe: () => void this.readings.delete(reader) };
    },
  };

  readonly blobs: Retained["blobs"] = {
    put: (name, data) => Promise.resolve(void this.stored.set(name, data)),
    get: (name) => Promise.resolve(this.stored.get(name) ?? null),
    list: () => (this.isUp ? Promise.resolve([...this.stored.keys()]) : Promise.reject(new Error("no blobs"))),
    remove: (name) => Promise.resolve(void this.stored.delete(name)),
  };
}

export function retainedOf(manager: Pick<TestManager, "records" | "clock">): TestLog {
  return new TestLog(manager.records as Uint8Array[], manager.clock);
}
