/**
 * Invariants of a log that lost records, checked in every life of every manager.
 *
 * S70: a change that a manager acknowledged to a client is in the log that it serves, unchanged, until an operator accepts the
 *      loss. A change acknowledged while the manager reports that it cannot write its mark counts once a mark was written in
 *      the same life (ADR 30).
 */
import type { Replica } from "../../runtime/store/replica.ts";

/** The first 48 bits of a checksum, as a number; 0 without a checksum. A text for each version of each life would be costly. */
function fingerprintOf(checksum: Uint8Array): number {
  let fingerprint = 0;
  for (let at = 0; at < 6; at += 1) fingerprint = fingerprint * 256 + (checksum[at] ?? 0);
  return fingerprint;
}

/** State of one manager across all its lives. */
export class LogMemory {
  /** Fingerprints by version: of applied versions, and of acknowledged ones. */
  readonly #applied = new Map<number, number>();
  readonly #acknowledged = new Map<number, number>();
  /** Versions acknowledged in this life while the mark could not be written, and not covered by a later mark. */
  readonly #unmarked = new Set<number>();
  readonly #fail: (claim: string) => void;

  constructor(fail: (claim: string) => void) {
    this.#fail = fail;
  }

  get newestAcknowledged(): number {
    return Math.max(0, ...this.#acknowledged.keys());
  }

  /** Follows one life. */
  follow(replica: Replica): void {
    this.#unmarked.clear();
    replica.watch(({ version }) => {
      const fingerprint = fingerprintOf(replica.checksum);
      const expected = this.#acknowledged.get(version);
      if (expected !== undefined && expected !== fingerprint)
        this.#fail(`S70: version ${version} was acknowledged but has other content now`);
      this.#applied.set(version, fingerprint);
    });
  }

  acknowledge(version: number, isMarked = true): void {
    this.#unmarked.add(version);
    if (!isMarked) return;
    for (const each of this.#unmarked) {
      const fingerprint = this.#applied.get(each);
      if (fingerprint !== undefined) this.#acknowledged.set(each, fingerprint);
    }
    this.#unmarked.clear();
  }

  /** The manager starts serving. */
  checkServing(replica: Replica): void {
    const newest = this.newestAcknowledged;
    if (replica.version < newest)
      this.#fail(`S70: version ${newest} was acknowledged, but version ${replica.version} is served`);
  }

  /** The operator has accepted the loss. */
  accept(): void {
    this.#acknowledged.clear();
  }
}

/** The version of the first object in an answer; null without objects. */
export function versionIn(answer: unknown): number | null {
  if (typeof answer !== "object" || answer === null) return null;
  for (const value of Object.values(answer)) {
    const index = (value as { readonly meta?: { readonly version?: { readonly index?: number } } } | null)?.meta
      ?.version?.index;
    if (index !== undefined) return index;
  }
  return null;
}
