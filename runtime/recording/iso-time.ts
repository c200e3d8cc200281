/** Limit of dates, in milliseconds from the epoch. */
const dateMsMax = 8.64e15;

/** ISO 8601 in UTC. A recording may claim any number; one beyond the limit is written as a number. */
export function isoTime(ms: number): string {
  return Math.abs(ms) <= dateMsMax ? new Date(ms).toISOString() : `${ms} ms`;
}
