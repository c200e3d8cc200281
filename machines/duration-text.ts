/** Durations in labels, in Go's format with a resolution of milliseconds: `1h30m`, `90s`, `500ms`, `0`. */
const unitMs: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };
const pattern = /^(?:\d+(?:\.\d+)?(?:ms|s|m|h))+$/;

/** In milliseconds; null for anything else. */
export function readDurationMs(text: string): number | null {
  if (text === "0") return 0;
  if (!pattern.test(text)) return null;
  let sum = 0;
  for (const [, amount, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)/g)) {
    sum += Number(amount) * (unitMs[unit as string] as number);
  }
  return sum;
}
