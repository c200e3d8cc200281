/** A broken invariant crashes the process and a supervisor restarts it, so nothing continues from an impossible state. */
export class InvariantError extends Error {
  override readonly name = "InvariantError";
}

/** Throws InvariantError with `claim` (which starts with the invariant's label, as in "L2: …") unless `condition` holds. */
export function assert(condition: boolean, claim: string): asserts condition {
  if (!condition) throw new InvariantError(claim);
}
