/** Durations in Nomad's syntax: `90s`, `1h30m`, `250ms`. */

const unitMs: Readonly<Record<string, number>> = { h: 3_600_000, m: 60_000, s: 1_000, ms: 1, us: 1e-3, ns: 1e-6 };

/** Milliseconds. Throws for an invalid duration. */
export function parseDuration(text: string): number {
  if (text === "0") return 0;
  if (!/^(\d+(\.\d+)?(h|ms|m|s|us|ns))+$/.test(text))
    throw new Error(`invalid duration ${JSON.stringify(text)}: expected a value such as 1h30m`);
  let ms = 0;
  for (const [, amount, unit] of text.matchAll(/(\d+(?:\.\d+)?)(h|ms|m|s|us|ns)/g))
    ms += Number(amount) * (unitMs[unit as string] as number);
  return ms;
}
