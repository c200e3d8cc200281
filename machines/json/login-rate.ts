/**
 * Rate limits of logins, in total and per source: against a storm of logins, and against password guessing. Two buckets per
 * source, one for attempts and one for refused logins, each refilled over a minute.
 *
 * LR1: a refused login costs more than a successful one, so that users who know their password are not limited because of
 *      someone who guesses it.
 * LR2: memory is bounded, however many addresses appear.
 * LR3: a source is an IPv4 address or an IPv6 /64 network (`runtime/source-of.ts`), all of whose addresses usually belong to
 *      one machine.
 */

/**
 * Logins of one source within a minute. Thousands of clients behind one address may reconnect at once after a change of
 * manager.
 */
export const attemptsPerMinute = 6_000;
/** Refused logins of one source within a minute. A person mistypes a few times; a guesser gets 43,200 attempts a day. */
export const refusalsPerMinute = 30;
/** Maximum number of sources kept; the least recently active ones are dropped. */
export const addressesMax = 10_000;

const minuteMs = 60_000;

interface Bucket {
  /** Level of the bucket at `at`, 0 to its limit. */
  readonly spent: number;
  readonly at: number;
}

const full = (at: number): Bucket => ({ spent: 0, at });

/** The current level: it drains evenly over a minute. */
function spentAt({ spent, at }: Bucket, now: number, perMinute: number): number {
  return Math.max(0, spent - (Math.max(0, now - at) * perMinute) / minuteMs);
}

export class LoginRate {
  readonly #attempts = new Map<string, Bucket>();
  readonly #refusals = new Map<string, Bucket>();

  /** Whether a login from the address may be checked; counts it. `now`: milliseconds since the epoch. */
  admits(address: string, now: number): boolean {
    if (spentAt(this.#refusals.get(address) ?? full(now), now, refusalsPerMinute) >= refusalsPerMinute) return false;
    return spend(this.#attempts, address, now, attemptsPerMinute);
  }

  /** Counts a refused login from the address. */
  refused(address: string, now: number): void {
    spend(this.#refusals, address, now, refusalsPerMinute);
  }

  /** Number of sources kept. LR2 */
  get size(): number {
    return Math.max(this.#attempts.size, this.#refusals.size);
  }
}

function spend(buckets: Map<string, Bucket>, address: string, now: number, perMinute: number): boolean {
  const spent = spentAt(buckets.get(address) ?? full(now), now, perMinute);
  const passes = spent + 1 <= perMinute;
  // Inserted again, it is the newest in the map's order.
  buckets.delete(address);
  buckets.set(address, { spent: passes ? spent + 1 : spent, at: now });
  if (buckets.size > addressesMax) {
    const [oldest] = buckets.keys();
    if (oldest !== undefined) buckets.delete(oldest);
  }
  return passes;
}
