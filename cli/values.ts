/** Parses values as users write them: durations, sizes, cores, labels; and formats durations. */
import { Duration, type Timestamp } from "../proto/gen/messages.ts";
import { timeMs } from "../proto/time.ts";
import { goDurationNanos } from "../lib/go-duration.ts";
import { humanDuration } from "../lib/human-duration.ts";
import { UsageError } from "../lib/user-error.ts";

/** Go's longest duration, about 292 years, in nanoseconds: 2^63-1. */
const durationNanosMax = Number(2n ** 63n - 1n);

/** Parses a Go duration: `1m30s`, `500ms`, `.5s`, `0`. */
export function parseDuration(text: string, flag: string): Duration {
  const signed = goDurationNanos(text);
  if (signed === null)
    throw new UsageError(`invalid argument "${text}" for "--${flag}" flag: expected a duration such as 10s or 1m30s`);
  if (Math.abs(signed) >= durationNanosMax) throw new UsageError(`--${flag}: ${text} is longer than 292 years`);
  const seconds = Math.trunc(signed / 1e9);
  return Duration.create({ seconds, nanos: Math.round(signed - seconds * 1e9) });
}

/** Parses a duration that is not negative. */
export function parsePositiveDuration(text: string, flag: string): Duration {
  if (text.startsWith("-")) throw new UsageError(`--${flag} cannot be negative`);
  return parseDuration(text, flag);
}

/** Parses bytes in units of powers of 1024: `512m`, `1.5GiB`, `4096`. */
export function parseBytes(text: string, flag: string): number {
  const match = /^(\d+\.?\d*|\.\d+)\s*([kmgtp]?)(?:i?b)?$/i.exec(text);
  if (match === null)
    throw new UsageError(`invalid argument "${text}" for "--${flag}" flag: expected a size such as 512m or 2g`);
  // The empty unit is at index 0, k at 1, …
  const power = ["", "k", "m", "g", "t", "p"].indexOf((match[2] as string).toLowerCase());
  return inRange(Math.round(Number(match[1]) * 1024 ** power), text, flag);
}

/** Parses a number of cores, such as `0.5`, `1/2` or `5e-1`, as 10^-9 parts. */
export function parseCpus(text: string, flag: string): number {
  const match = /^((?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(?:\/(\d*[1-9]\d*))?$/i.exec(text);
  if (match === null)
    throw new UsageError(`invalid argument "${text}" for "--${flag}" flag: expected a number of cores such as 0.5`);
  const nanos = (Number(match[1]) * 1e9) / Number(match[2] ?? 1);
  const whole = Math.round(nanos);
  // A hundredth: above rounding errors, and below one more digit.
  if (Math.abs(nanos - whole) > 0.01 || (whole === 0 && nanos > 0))
    throw new UsageError(`--${flag}: ${text} is too precise: the unit is a billionth of a core`);
  return inRange(whole, text, flag);
}

/** Larger integers are inexact and would change in a message. */
function inRange(count: number, text: string, flag: string): number {
  if (!Number.isSafeInteger(count)) throw new UsageError(`--${flag}: ${text} is out of range`);
  return count;
}

/** Minimum of a count that the server validates. */
export const anyNumber = Number.NEGATIVE_INFINITY;

/** Parses a whole number of at least `least`. */
export function parseCount(text: string, flag: string, least = 0): number {
  if (!/^-?\d+$/.test(text))
    throw new UsageError(`invalid argument "${text}" for "--${flag}" flag: expected a whole number`);
  const count = inRange(Number(text), text, flag);
  if (count < least) throw new UsageError(`--${flag} cannot be negative`);
  return count;
}

/** Parses a fraction; the server validates its range. */
export function parseRatio(text: string, flag: string): number {
  if (!/^[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?$/i.test(text))
    throw new UsageError(`invalid argument "${text}" for "--${flag}" flag: expected a number such as 0.25`);
  // The field is a single-precision float: round now, so that comparisons and output use the same value.
  return Math.fround(Number(text));
}

/**
 * Fields of a value such as `type=bind,"source=/a,b",target=/c`: one line of CSV, in which a quoted field may contain commas,
 * and doubled quotes mean one.
 */
export function csvFields(text: string, flag: string): readonly string[] {
  const fields: string[] = [];
  const field = /(?:"((?:[^"]|"")*)"|([^",]*))(,|$)/y;
  while (field.lastIndex <= text.length) {
    const match = field.exec(text);
    if (match === null) throw new UsageError(`--${flag}: unbalanced quotes in "${text}"`);
    fields.push(match[1]?.replaceAll('""', '"') ?? match[2] ?? "");
    if (match[3] === "") return fields;
  }
  return fields;
}

/** Splits a command line into words like a shell, without expansion. */
export function shellWords(text: string, flag: string): readonly string[] {
  const words: string[] = [];
  let word: string | null = null;
  for (let at = 0; at < text.length; at += 1) {
    const char = text.charAt(at);
    if (/\s/.test(char)) {
      if (word !== null) words.push(word);
      word = null;
    } else if (char === "'" || char === '"') {
      const [inner, end] = quoted(text, at, flag);
      word = (word ?? "") + inner;
      at = end;
    } else if (char === "\\") {
      at += 1;
      if (at >= text.length) throw new UsageError(`--${flag}: trailing backslash in "${text}"`);
      word = (word ?? "") + text.charAt(at);
    } else word = (word ?? "") + char;
  }
  if (word !== null) words.push(word);
  return words;
}

/**
 * The text from the quote at `from` to its closing quote, and the position after it. A backslash escapes only within double
 * quotes.
 */
function quoted(text: string, from: number, flag: string): readonly [string, number] {
  const quote = text.charAt(from);
  let inner = "";
  for (let at = from + 1; at < text.length; at += 1) {
    const char = text.charAt(at);
    if (char === quote) return [inner, at];
    if (char === "\\" && quote === '"' && at + 1 < text.length) {
      at += 1;
      inner += text.charAt(at);
    } else inner += char;
  }
  throw new UsageError(`--${flag}: missing closing quote in "${text}"`);
}

/** Parses labels: `k=v`, or `k` for an empty value. As in Docker, keys contain no blanks. */
export function parseLabels(texts: readonly string[], flag = "label"): Record<string, string> {
  for (const text of texts) {
    const key = (text.split("=")[0] as string).trimStart();
    if (key === "") throw new UsageError(`invalid argument "${text}" for "--${flag}" flag: expected KEY=VALUE`);
    if (/\s/.test(key)) throw new UsageError(`--${flag}: the key of "${text}" contains blanks`);
  }
  return parsePairs(texts);
}

/** Parses `k=v`, or `k` for an empty value. */
export function parsePairs(texts: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    texts.map((text) => {
      const at = text.indexOf("=");
      return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
    }),
  );
}

/** Parses one of a fixed set of words. */
export function parseChoice<Word extends string, Value>(
  text: string,
  flag: string,
  choices: Readonly<Record<Word, Value>>,
): Value {
  const found = Object.entries(choices).find(([word]) => word === text);
  if (found === undefined)
    throw new UsageError(
      `invalid argument "${text}" for "--${flag}" flag: expected one of ${Object.keys(choices).join(", ")}`,
    );
  return found[1] as Value;
}

export function millisecondsOf(timestamp: Timestamp | null): number | null {
  return timestamp === null ? null : timeMs(timestamp);
}

/** Formats a duration like Go: `1m30s`, `500ms`, `0s`. */
export function durationText(duration: Duration | null): string {
  const nanos = (duration?.seconds ?? 0) * 1e9 + (duration?.nanos ?? 0);
  const size = Math.abs(nanos);
  const sign = nanos < 0 ? "-" : "";
  if (size === 0) return "0s";
  if (size < 1e3) return `${sign}${size}ns`;
  if (size < 1e6) return `${sign}${size / 1e3}µs`;
  if (size < 1e9) return `${sign}${size / 1e6}ms`;
  const hours = Math.floor(size / 3_600e9);
  const minutes = Math.floor((size % 3_600e9) / 60e9);
  const seconds = (size % 60e9) / 1e9;
  return `${sign}${hours > 0 ? `${hours}h` : ""}${hours > 0 || minutes > 0 ? `${minutes}m` : ""}${seconds}s`;
}

export function ago(timestamp: Timestamp | null, now: number): string {
  const at = millisecondsOf(timestamp);
  return at === null ? "" : `${humanDuration(Math.max(0, now - at)).toLowerCase()} ago`;
}
