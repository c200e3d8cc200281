/**
 * What a manager may make of a log that lost records. Looked at in every life of every manager.
 *
 * S70: what a manager has acknowledged to a client is in the log that it serves, as it was, until somebody accepts the loss. What it
 *      acknowledged while it said that its mark cannot be written counts once a mark was written in the same life (ADR 30).
 */
import { toHex } from "../../runtime/store/record.ts";
import type { Replica } from "../../runtime/store/replica.ts";

/** Of one manager, through all its lives. */
export class LogMemory {
  /** Checksums by version: of what this manager has applied, and of what it has answered somebody with. */
  readonly #applied = new Map<number, string>();
  readonly #acknowledged = new Map<number, string>();
  /** Answered in this life while the mark could not be written, and not covered by one since. */
  readonly #unmarked = new Set<number>();
  readonly #fail: (claim: string) => void;

  constructor(fail: (claim: string) => void) {
    this.#fail = fail;
  }

  get newestAcknowledged(): number {
    return Math.max(0, ...this.#acknowledged.keys());
  }

  /** For one life. */
  follow(replica: Replica): void {
    this.#unmarked.clear();
    replica.watch(({ version }) => {
      const checksum = toHex(replica.checksum);
      const expected = this.#acknowledged.get(version);
      if (expected !== undefined && expected !== checksum)
        this.#fail(`S70: version ${version} was acknowledged, and is another one now`);
      this.#applied.set(version, checksum);
    });
  }

  acknowledge(version: number, isMarked = true): void {
    this.#unmarked.add(version);
    if (!isMarked) return;
    for (const each of this.#unmarked) {
      const checksum = this.#applied.get(each);
      if (checksum !== undefined) this.#acknowledged.set(each, checksum);
    }
    this.#unmarked.clear();
  }

  /** It begins to serve. */
  checkServing(replica: Replica): void {
    const newest = this.newestAcknowledged;
    if (replica.version < newest)
      this.#fail(`S70: version ${newest} was acknowledged, and version ${replica.version} is served`);
  }

  /** Somebody has accepted what the log has lost. */
  accept(): void {
    this.#acknowledged.clear();
  }
}

/** The version of the first object in an answer; null where there is none. */
export function versionIn(answer: unknown): number | null {
  if (typeof answer !== "object" || answer === null) return null;
  for (const value of Object.values(answer)) {
    const index = (value as { readonly meta?: { readonly version?: { readonly index?: number } } } | null)?.meta
      ?.version?.index;
    if (index !== undefined) return index;
  }
  return null;
}
