/**
 * Names of chains and sets, and texts in rules. All text from main passes through here before nft parses it.
 *
 * N1: different objects never get the same name, and no name or text can terminate its word or line.
 */
import { createHash } from "node:crypto";

/** Our own table: nothing outside it is read or written. */
export const tableName = "muster-policy";

/** Length of the readable part, which precedes the hash; the kernel allows 127 characters in total. */
const readableMax = 40;

/** `PREFIX-readable-hash`. The prefix avoids nft's keywords. N1 */
export function nameOf(prefix: string, id: string): string {
  const readable = id.replaceAll(/[^A-Za-z0-9]+/g, "_").slice(0, readableMax);
  return `${prefix}-${readable}-${createHash("sha256").update(id).digest("hex").slice(0, 16)}`;
}

/** A valid kernel interface name, without characters that nft would parse as a pattern, an escape or the end of the text. */
export function isInterfaceName(text: string): boolean {
  return /^[A-Za-z0-9_.:@=+-]{1,15}$/.test(text) && text !== "." && text !== "..";
}

/** For `log prefix`: at most 127 characters, and none that ends the text. */
export function logPrefix(text: string): string {
  return `"${text.replaceAll(/[^A-Za-z0-9 _.:,=/@+-]/g, "_").slice(0, 120)}"`;
}
