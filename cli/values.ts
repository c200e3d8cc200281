/** Values as users write them: durations, sizes, shares of cores, labels; and times as they like to read them. */
import { Duration, type Timestamp } from "../proto/gen/messages.ts";
import { UsageError } from "./command.ts";

const unitNanos: Readonly<Record<string, number>> = {
  ns: 1,
  us: 1e3,
  µs: 1e3,
  ms: 1e6,
  s: 1e9,
  m: 60e9,
  h: 3_600e9,
};

/** `1m30s`, `500ms`, `0`: as Go writes durations. */
export function parseDuration(text: string, flag: string): Duration {
  const match = /^(-)?((?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+|0)$/.exec(text);
  if (match === null) throw new UsageError(`--${flag} takes a duration such as 10s or 1m30s, not '${text}'`);
  let nanos = 0;
  for (const [, amount, unit] of (match[2] as string).matchAll(/(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)/g)) {
    nanos += Number(amount) * (unitNanos[unit as string] as number);
  }
  const signed = match[1] === "-" ? -nanos : nanos;
  const seconds = Math.trunc(signed / 1e9);
  return Duration.create({ seconds, nanos: Math.round(signed - seconds * 1e9) });
}

/** `512m`, `1.5GiB`, `4096`: bytes, by powers of 1024. */
export function parseBytes(text: string, flag: string): number {
  const match = /^(\d+(?:\.\d+)?)\s*([kmgtp]?)(?:i?b)?$/i.exec(text);
  if (match === null) throw new UsageError(`--${flag} takes a size such as 512m or 2g, not '${text}'`);
  // The empty unit is found at 0, k at 1, …
  const power = ["", "k", "m", "g", "t", "p"].indexOf((match[2] as string).toLowerCase());
  return Math.round(Number(match[1]) * 1024 ** power);
}

/** `0.5`: cores, as 10^-9 parts. */
export function parseCpus(text: string, flag: string): number {
  if (!/^\d+(?:\.\d+)?$/.test(text))
    throw new UsageError(`--${flag} takes a number of cores such as 0.5, not '${text}'`);
  return Math.round(Number(text) * 1e9);
}

/** A whole number; below zero only where the server is to say what it thinks of that. */
export function parseCount(text: string, flag: string): number {
  if (!/^-?\d+$/.test(text)) throw new UsageError(`--${flag} takes a whole number, not '${text}'`);
  return Number(text);
}

/** `k=v` each, or `k` for an empty value. */
export function parseLabels(texts: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    texts.map((text) => {
      const at = text.indexOf("=");
      return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
    }),
  );
}

/** One of a fixed set of words. */
export function parseChoice<Word extends string, Value>(
  text: string,
  flag: string,
  choices: Readonly<Record<Word, Value>>,
): Value {
  const found = Object.entries(choices).find(([word]) => word === text);
  if (found === undefined)
    throw new UsageError(`--${flag} takes one of ${Object.keys(choices).join(", ")}, not '${text}'`);
  return found[1] as Value;
}

export function millisecondsOf(timestamp: Timestamp | null): number | null {
  return timestamp === null ? null : timestamp.seconds * 1_000 + timestamp.nanos / 1e6;
}

/** Docker's way of saying how long something takes or took. */
export function humanDuration(ms: number): string {
  const seconds = Math.floor(ms / 1_000);
  if (seconds < 1) return "Less than a second";
  if (seconds === 1) return "1 second";
  if (seconds < 60) return `${seconds} seconds`;
  const minutes = Math.floor(seconds / 60);
  if (minutes === 1) return "About a minute";
  if (minutes < 60) return `${minutes} minutes`;
  const hours = Math.round(seconds / 3_600);
  if (hours === 1) return "About an hour";
  if (hours < 48) return `${hours} hours`;
  if (hours < 24 * 14) return `${Math.floor(hours / 24)} days`;
  if (hours < 24 * 90) return `${Math.floor(hours / 24 / 7)} weeks`;
  if (hours < 24 * 365 * 2) return `${Math.floor(hours / 24 / 30)} months`;
  return `${Math.floor(hours / 24 / 365)} years`;
}

export function ago(timestamp: Timestamp | null, now: number): string {
  const at = millisecondsOf(timestamp);
  return at === null ? "" : `${humanDuration(Math.max(0, now - at)).toLowerCase()} ago`;
}
