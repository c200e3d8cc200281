/**
 * Leases for who can read the log alone. A manager that lacks a data key cannot lead, and while it held the lease nobody
 * could: the others, which have the key, do not even serve before somebody leads.
 */
import type { KvOutcome, LeaseBucket } from "../ports.ts";
import type { Keyring } from "./keyring.ts";

export function readersLeases(leases: LeaseBucket, keyring: Keyring): LeaseBucket {
  const refusal: KvOutcome = { kind: "conflict" };
  const isBlind = (): boolean => keyring.lacking.length > 0;
  return {
    ttlMs: leases.ttlMs,
    create: (key, value) => (isBlind() ? Promise.resolve(refusal) : leases.create(key, value)),
    // One that is held already runs out.
    update: (key, value, revision) => (isBlind() ? Promise.resolve(refusal) : leases.update(key, value, revision)),
    get: (key) => leases.get(key),
    remove: (key, revision) => leases.remove(key, revision),
  };
}
