/**
 * Seeds of CI that fail today, each with the finding behind it: as `test.failing` for the tests. Such a seed has to fail with that
 * claim: one that passes, or fails for another reason, fails the run, so that the list cannot rot. It is to become empty.
 */

export interface KnownFailure {
  /** How the claim begins that does not hold. */
  readonly claim: string;
  /** What is known of the cause, and what is not. */
  readonly finding: string;
}

export const knownFailures: ReadonlyMap<number, KnownFailure> = new Map();

export type SeedVerdict = "passed" | "failed" | "known";

export interface JudgedSeed {
  readonly verdict: SeedVerdict;
  /** A sentence about it; empty where there is nothing to say. */
  readonly note: string;
}

/** `failure`: the claim that does not hold and its details; null when the seed passed. */
export function judgeSeed(known: KnownFailure | undefined, failure: string | null): JudgedSeed {
  if (known === undefined) return { verdict: failure === null ? "passed" : "failed", note: "" };
  if (failure === null)
    return { verdict: "failed", note: `it passes: take it off test/sim/known-failures.ts (${known.finding})` };
  if (failure.includes(known.claim)) return { verdict: "known", note: known.finding };
  return { verdict: "failed", note: `it is known to fail with ${known.claim}, not with this` };
}
