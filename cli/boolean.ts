/** Booleans on the command line. A file of its own, since every command loads it, and most need no other values. */
import { UsageError } from "../lib/user-error.ts";

/** Go's words for true and false; null for any other. */
export function parseBoolean(text: string): boolean | null {
  if (/^(?:1|t|T|true|True|TRUE)$/.test(text)) return true;
  return /^(?:0|f|F|false|False|FALSE)$/.test(text) ? false : null;
}

export function parseBooleanFlag(text: string, flag: string): boolean {
  const parsed = parseBoolean(text);
  if (parsed === null) throw new UsageError(`invalid argument "${text}" for "--${flag}" flag: expected true or false`);
  return parsed;
}
