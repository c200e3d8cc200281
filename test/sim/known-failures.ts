/**
 * CI seeds that are known to fail, each with its finding, like `test.failing` for tests. Such a seed must fail with the listed
 * claim:
 * if it passes, or fails otherwise, the run fails, so that the list stays correct. The goal is an empty list.
 */

export interface KnownFailure {
  /** Prefix of the violated claim. */
  readonly claim: string;
  /** Findings about the cause. */
  readonly finding: string;
}

export const knownFailures: ReadonlyMap<number, KnownFailure> = new Map();

type SeedVerdict = "passed" | "failed" | "known";

interface JudgedSeed {
  readonly verdict: SeedVerdict;
  /** An explanation; may be empty. */
  readonly note: string;
}

/** `failure`: the violated claim with details; null if the seed passed. */
export function judgeSeed(known: KnownFailure | undefined, failure: string | null): JudgedSeed {
  if (known === undefined) return { verdict: failure === null ? "passed" : "failed", note: "" };
  if (failure === null)
    return { verdict: "failed", note: `it passes: remove it from test/sim/known-failures.ts (${known.finding})` };
  if (failure.includes(known.claim)) return { verdict: "known", note: known.finding };
  return { verdict: "failed", note: `expected the known failure ${known.claim}` };
}
