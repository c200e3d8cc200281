/**
 * Why a request to the Control service is refused, as a value. The kinds are named after gRPC's status codes; one table
 * in `actors/control/answer.ts` maps them. Texts are SwarmKit's where SwarmKit has one, because clients show them.
 */
export type RefusalKind =
  | "invalid-argument"
  | "not-found"
  | "already-exists"
  | "permission-denied"
  | "failed-precondition"
  | "aborted"
  | "unimplemented";

export interface Refusal {
  readonly kind: RefusalKind;
  readonly message: string;
}

export function refuse(kind: RefusalKind, message: string): Refusal {
  return { kind, message };
}

export function invalid(message: string): Refusal {
  return { kind: "invalid-argument", message };
}

/** The first refusal, in the order of the checks; null when all pass. Later checks do not run. */
export function firstRefusal(...checks: readonly (() => Refusal | null)[]): Refusal | null {
  for (const check of checks) {
    const refusal = check();
    if (refusal !== null) return refusal;
  }
  return null;
}
