/** How a measured value is spread over the seeds. */

export interface Spread {
  readonly min: number;
  readonly p5: number;
  readonly median: number;
  readonly p95: number;
  readonly max: number;
}

/** Nearest rank: one of the values. `sorted`: from the smallest, at least one. */
export function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] as number;
}

/** Each percentile is a value that a seed had. Null: no values. */
export function spreadOf(values: readonly number[]): Spread | null {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number): number => percentile(sorted, share);
  return sorted.length === 0 ? null : { min: at(0), p5: at(0.05), median: at(0.5), p95: at(0.95), max: at(1) };
}

/** Numbers by key, the largest first; those of the same size by key. */
export function ranked(counts: ReadonlyMap<string, number>): readonly (readonly [string, number])[] {
  return [...counts].toSorted(([a, x], [b, y]) => y - x || (a < b ? -1 : 1));
}
