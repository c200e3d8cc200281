/** Query values as a stock engine parses them, with Go's errors. */
import { goDurationNanos } from "../../lib/go-duration.ts";
import { badRequest, Failure } from "./failure.ts";

const yes = new Set(["1", "t", "T", "TRUE", "true", "True"]);
const no = new Set(["0", "f", "F", "FALSE", "false", "False"]);

/** Null for a text that is neither. */
export function parseBool(text: string): boolean | null {
  if (yes.has(text)) return true;
  return no.has(text) ? false : null;
}

/** As the engine's own helper: everything but a few words for "no" means "yes". */
export function isSet(text: string | null): boolean {
  const word = (text ?? "").trim().toLowerCase();
  return !["", "0", "no", "false", "none"].includes(word);
}

function syntaxError(text: string, parser: string): string {
  return `strconv.${parser}: parsing ${JSON.stringify(text)}: invalid syntax`;
}

/** A flag that must be a boolean if it is set. Throws Failure. */
export function boolOf(query: URLSearchParams, name: string): boolean {
  const text = query.get(name) ?? "";
  if (text === "") return false;
  const value = parseBool(text);
  if (value === null) throw badRequest(`invalid value for ${name}: ${text}: ${syntaxError(text, "ParseBool")}`);
  return value;
}

/** The version of an object that a client read. Throws Failure. */
export function versionOf(query: URLSearchParams, noun: string, isShort = false): number {
  const text = query.get("version") ?? "";
  if (/^\d{1,19}$/.test(text)) return Number(text);
  if (isShort) throw badRequest(`invalid ${noun} version`);
  throw badRequest(`invalid ${noun} version '${text}': ${syntaxError(text, "ParseUint")}`);
}

/** A time as `seconds[.nanoseconds]` since the epoch; null if unset. Throws Failure. */
export function timestampOf(
  text: string,
  failed: (error: string) => Failure = (error) => new Failure(500, error),
): { readonly seconds: number; readonly nanos: number } | null {
  if (text === "") return null;
  const [seconds = "", fraction = ""] = text.split(".", 2);
  for (const part of [seconds, fraction])
    if (!/^-?\d+$/.test(part) && (part !== "" || part === seconds)) throw failed(syntaxError(part, "ParseInt"));
  return { seconds: Number(seconds), nanos: Number(fraction.padEnd(9, "0").slice(0, 9)) };
}

const date = /^(\d{4}-\d\d-\d\d)(?:T(\d\d)(?::(\d\d)(?::(\d\d(?:\.\d+)?))?)?)?(Z|[-+]\d\d:\d\d)?$/;
const unixTime = /^\+?(\d+)(?:\.(\d+))?$/;

/**
 * The time of an `until` filter in milliseconds since the epoch: a duration of Go before now, a date in the given zone or else
 * this machine's, or a Unix time. Null if an engine reads none.
 */
export function timeBefore(text: string, nowMs: number): number | null {
  const nanos = text === "0" ? null : goDurationNanos(text);
  if (nanos !== null) return nowMs - nanos / 1e6;
  const [, seconds, fraction = ""] = unixTime.exec(text) ?? [];
  if (seconds !== undefined) return Number(`${seconds}.${fraction}`) * 1_000;
  const [, day, hour = "00", minute = "00", second = "00", zone = ""] = date.exec(text) ?? [];
  const ms = day === undefined ? Number.NaN : Date.parse(`${day}T${hour}:${minute}:${second}${zone}`);
  return Number.isNaN(ms) ? null : ms;
}
