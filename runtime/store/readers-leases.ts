/**
 * Leases only for managers that can read the log. A manager that lacks a data key cannot lead, and while it held the lease
 * nobody could: the others, which have the key, do not even serve before there is a leader.
 */
import type { KvOutcome, LeaseBucket } from "../ports/index.ts";
import type { Keyring } from "./keyring.ts";

export function readersLeases(leases: LeaseBucket, keyring: Keyring): LeaseBucket {
  const refusal: KvOutcome = { kind: "conflict" };
  const isBlind = (): boolean => keyring.missing.length > 0;
  return {
    ttlMs: leases.ttlMs,
    create: (key, value) => (isBlind() ? Promise.resolve(refusal) : leases.create(key, value)),
    // A lease that is already held expires.
    update: (key, value, revision) => (isBlind() ? Promise.resolve(refusal) : leases.update(key, value, revision)),
    get: (key) => leases.get(key),
    remove: (key, revision) => leases.remove(key, revision),
  };
}
