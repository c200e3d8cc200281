/**
 * The history of a node's registrations: their rate (SwarmKit's rate limit), and whether two live machines with one identity
 * evict each other.
 */

/** From SwarmKit (worker protocol §4.1, §4.2): the first registration and three more within a window pass. */
const registrationsMax = 3;
const registrationWindowMs = 8_000;

/**
 * Two evictions of a connected session within this many milliseconds count as a duplicate. One eviction may be a host that
 * lost power and returned before its old connection was missed; that does not happen twice a minute.
 */
export const duplicateWindowMs = 60_000;
const duplicateEvictionsMin = 2;

export interface RegistrationHistory {
  /** When the last registration was accepted. */
  readonly acceptedAt: number;
  /** Registrations accepted since the window began, after the first. */
  readonly count: number;
  /** When connected sessions of the node were replaced by a registration from elsewhere; oldest first, within the window. */
  readonly evictions: readonly number[];
  /** Origins of the last registrations; at most two different ones, the newest last. */
  readonly addresses: readonly string[];
}

export const noHistory: RegistrationHistory = { acceptedAt: 0, count: 0, evictions: [], addresses: [] };

/** A registration request. `hasSession`: the node has a session now; without one, there is no limit. */
export function registered(
  history: RegistrationHistory,
  { at, hasSession, address }: { at: number; hasSession: boolean; address: string },
): { readonly kind: "accepted"; readonly history: RegistrationHistory } | { readonly kind: "limited" } {
  const isFresh = !hasSession || at - history.acceptedAt > registrationWindowMs;
  const count = isFresh ? 0 : history.count + 1;
  if (count > registrationsMax) return { kind: "limited" };
  const addresses = [...history.addresses.filter((known) => known !== address), address].slice(-2);
  return { kind: "accepted", history: { ...history, acceptedAt: at, count, addresses } };
}

/** A connected session was replaced. */
export function evicted(history: RegistrationHistory, at: number): RegistrationHistory {
  return {
    ...history,
    evictions: [...history.evictions.filter((time) => at - time < duplicateWindowMs), at].slice(-8),
  };
}

/** Whether two live machines seem to have the identity at time `at`. */
export function isDuplicate(history: RegistrationHistory, at: number): boolean {
  return history.evictions.filter((time) => at - time < duplicateWindowMs).length >= duplicateEvictionsMin;
}

/** Whether the history no longer affects any decision. */
export function isStale(history: RegistrationHistory, at: number): boolean {
  return at - history.acceptedAt > Math.max(registrationWindowMs, duplicateWindowMs) && !isDuplicate(history, at);
}
