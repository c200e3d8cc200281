/** Secrets that flags read from files, to keep them out of arguments. */
import { contentFrom } from "./content.ts";
import { UserError } from "../lib/user-error.ts";

/** The first line of the file, or of standard input for `-`. Throws UserError. */
export function secretFrom(path: string, what: string): string {
  const [line = ""] = Buffer.from(contentFrom(path)).toString("utf8").split(/\r?\n/);
  if (line.trim() === "")
    throw new UserError(`${path === "-" ? "standard input" : path} is empty: its first line must be the ${what}`);
  return line.trim();
}
