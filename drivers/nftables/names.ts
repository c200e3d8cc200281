/**
 * Names of chains and sets, and texts inside rules. Everything that main says passes through here before nft reads it.
 *
 * N1: two objects never get one name, and no name or text can end the word or the line that it stands in.
 */
import { createHash } from "node:crypto";

/** Our own table: nothing outside of it is read or written. */
export const tableName = "muster-policy";

/** For people, beside the hash that tells apart; the kernel takes 127 in all. */
const readableMax = 40;

/** `PREFIX-readable-hash`. The prefix keeps names off nft's keywords. N1 */
export function nameOf(prefix: string, id: string): string {
  const readable = id.replaceAll(/[^A-Za-z0-9]+/g, "_").slice(0, readableMax);
  return `${prefix}-${readable}-${createHash("sha256").update(id).digest("hex").slice(0, 16)}`;
}

/** As the kernel takes interface names, without what nft would read as a pattern, an escape or the end of the text. */
export function isInterfaceName(text: string): boolean {
  return /^[A-Za-z0-9_.:@=+-]{1,15}$/.test(text) && text !== "." && text !== "..";
}

/** For `log prefix`: at most 127 characters, none that ends the text. */
export function logPrefix(text: string): string {
  return `"${text.replaceAll(/[^A-Za-z0-9 _.:,=/@+-]/g, "_").slice(0, 120)}"`;
}
