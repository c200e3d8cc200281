/** Plain values for YAML, as a person would write them. */
import { durationOf } from "../../proto/time.ts";
import { durationText } from "../values.ts";

/** Without undefined values. */
export function compact(value: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(value).filter(([, each]) => each !== undefined));
}

export function orNothing<Value>(value: Value, isNothing: boolean): Value | undefined {
  return isNothing ? undefined : value;
}

const units = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1_000],
] as const;

/** `30d`, `90s` or `1m0.5s`: read back as the same number of milliseconds. */
export function msText(ms: number): string {
  const unit = ms === 0 ? undefined : units.find(([, size]) => ms % size === 0);
  return unit === undefined ? durationText(durationOf(ms)) : `${ms / unit[1]}${unit[0]}`;
}

/** `8g`, `512m`, or a number of bytes. */
export function bytesText(bytes: number): string | number {
  if (bytes > 0 && bytes % 2 ** 30 === 0) return `${bytes / 2 ** 30}g`;
  return bytes > 0 && bytes % 2 ** 20 === 0 ? `${bytes / 2 ** 20}m` : bytes;
}
