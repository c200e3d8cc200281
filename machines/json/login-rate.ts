/**
 * How fast logins may come, in all and from one source: the bound for a storm of logins, and for somebody who guesses passwords. Two
 * buckets for each source, one for attempts and one for refused ones, which fill up again over a minute.
 *
 * LR1: a refused login costs more than one that succeeds, so that those who know their password are not held up by the
 *      bound for those who guess it.
 * LR2: what is kept is bounded, however many addresses come.
 * LR3: a source is an IPv4 address or an IPv6 /64 network (`runtime/source-of.ts`), of which one machine usually has all addresses.
 */

/** Logins of one address within a minute. Thousands of clients behind one address may come back at once after a change of manager. */
export const attemptsPerMinute = 6_000;
/** Refused ones. A person mistypes a few times; a guesser gets 43,200 tries in a day. */
export const refusalsPerMinute = 30;
/** Addresses that are remembered; of more, those that did nothing for longest are forgotten. */
export const addressesMax = 10_000;

const minuteMs = 60_000;

interface Bucket {
  /** Spent of the bucket at `at`, 0 to its bound. */
  readonly spent: number;
  readonly at: number;
}

const full = (at: number): Bucket => ({ spent: 0, at });

/** What is spent by now: it comes back evenly over a minute. */
function spentAt({ spent, at }: Bucket, now: number, perMinute: number): number {
  return Math.max(0, spent - (Math.max(0, now - at) * perMinute) / minuteMs);
}

export class LoginRate {
  readonly #attempts = new Map<string, Bucket>();
  readonly #refusals = new Map<string, Bucket>();

  /** Whether a login of the address may be looked at; counts it. `now`: milliseconds since the epoch. */
  admits(address: string, now: number): boolean {
    if (spentAt(this.#refusals.get(address) ?? full(now), now, refusalsPerMinute) >= refusalsPerMinute) return false;
    return spend(this.#attempts, address, now, attemptsPerMinute);
  }

  /** A login of the address was refused. */
  refused(address: string, now: number): void {
    spend(this.#refusals, address, now, refusalsPerMinute);
  }

  /** Addresses that are remembered. LR2 */
  get size(): number {
    return Math.max(this.#attempts.size, this.#refusals.size);
  }
}

function spend(buckets: Map<string, Bucket>, address: string, now: number, perMinute: number): boolean {
  const spent = spentAt(buckets.get(address) ?? full(now), now, perMinute);
  const passes = spent + 1 <= perMinute;
  // Set anew, it is the youngest of the map's order.
  buckets.delete(address);
  buckets.set(address, { spent: passes ? spent + 1 : spent, at: now });
  if (buckets.size > addressesMax) {
    const [oldest] = buckets.keys();
    if (oldest !== undefined) buckets.delete(oldest);
  }
  return passes;
}
