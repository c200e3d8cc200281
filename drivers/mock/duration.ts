/** Durations as Nomad's users write them: `90s`, `1h30m`, `250ms`. */

const unitMs: Readonly<Record<string, number>> = { h: 3_600_000, m: 60_000, s: 1_000, ms: 1, us: 1e-3, ns: 1e-6 };

/** Milliseconds. Throws for a text that is no duration. */
export function parseDuration(text: string): number {
  if (text === "0") return 0;
  if (!/^(\d+(\.\d+)?(h|ms|m|s|us|ns))+$/.test(text))
    throw new Error(`${JSON.stringify(text)} is no duration: write 1h30m`);
  let ms = 0;
  for (const [, amount, unit] of text.matchAll(/(\d+(?:\.\d+)?)(h|ms|m|s|us|ns)/g))
    ms += Number(amount) * (unitMs[unit as string] as number);
  return ms;
}
