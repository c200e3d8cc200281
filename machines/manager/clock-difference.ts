/** How another machine's wall clock differs from this one's. */

/** From the question to the answer, in milliseconds, by this machine's clocks; and the other one's wall clock in the answer. */
interface Asked {
  readonly askedAtMs: number;
  readonly tookMs: number;
  readonly theirsMs: number;
}

/**
 * The other clock was read at some moment between question and answer: the middle is wrong by half of the time at most. Whole
 * milliseconds; the error is rounded up.
 */
export function clockDifference({ askedAtMs, theirsMs, tookMs }: Asked): {
  readonly aheadMs: number;
  readonly errorMs: number;
} {
  return { aheadMs: Math.round(theirsMs - (askedAtMs + tookMs / 2)), errorMs: Math.ceil(tookMs / 2) };
}
