/** Values in reports, as texts: the same words in the terminal and on the page. */
import { msText } from "./plain-values.ts";
import type { Spread } from "./spread.ts";

/** `95.9%`, and `99.95%` near the ends; never rounded to 100% or 0%. */
export function shareText(share: number): string {
  const percent = share * 100;
  const isNearEnd = share > 0.99 || share < 0.01;
  const text = Number(percent.toFixed(isNearEnd ? 3 : 1));
  if (share < 1 && text >= 100) return "99.999%";
  return share > 0 && text === 0 ? "0.001%" : `${text}%`;
}

/** `1m12s`, to the second from ten seconds on, to the tenth below. */
export function timeText(ms: number): string {
  const step = ms >= 10_000 ? 1_000 : 100;
  const rounded = Math.round(ms / step) * step;
  if (rounded < 60_000) return msText(rounded).replace(/^0$/, "0s");
  const seconds = Math.round(rounded / 1_000);
  const [hours, minutes, rest] = [Math.floor(seconds / 3_600), Math.floor(seconds / 60) % 60, seconds % 60];
  return `${hours > 0 ? `${hours}h` : ""}${minutes > 0 ? `${minutes}m` : ""}${rest > 0 ? `${rest}s` : ""}`;
}

export function countText(count: number): string {
  return Number.isInteger(count) ? String(count) : count.toFixed(1);
}

/** `1 seed`, `2 seeds`. */
export function plural(count: number, word: string): string {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

/** The worst value first: `low` says that a small value is bad. */
export function spreadTexts(
  spread: Spread | null,
  text: (value: number) => string,
  low: boolean,
): readonly [worst: string, bad: string, median: string] {
  if (spread === null) return ["-", "-", "-"];
  const { min, p5, median, p95, max } = spread;
  return low ? [text(min), text(p5), text(median)] : [text(max), text(p95), text(median)];
}
