/** `--env` and `--env-file`, and updates of a service's environment. */
import { readFileSync } from "node:fs";
import type { CreateValues, UpdateValues } from "./flags.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";

const nameOf = (entry: string): string => entry.split("=", 1)[0] as string;

/** Keeps `NAME=value`; expands `NAME` with its value here, or keeps it when unset. */
function entryFor(text: string, flag: string): string {
  if (nameOf(text) === "")
    throw new UsageError(`invalid argument "${text}" for "--${flag}" flag: expected NAME=VALUE or NAME`);
  const value = process.env[text];
  return text.includes("=") || value === undefined ? text : `${text}=${value}`;
}

/** Reads one variable per line; skips empty lines and those that begin with `#`, and a name that has no value here. */
function entriesOf(path: string): readonly string[] {
  let content: string;
  try {
    content = readFileSync(path, "utf8");
  } catch (error) {
    throw new UserError(`cannot read the environment file ${path}: ${(error as Error).message}`, { cause: error });
  }
  const lines = content
    .replace(/^\ufeff/, "")
    .split(/\r?\n/)
    .map((line) => line.trimStart())
    .filter((line) => line !== "" && !line.startsWith("#"));
  return lines.flatMap((line) => {
    const name = nameOf(line);
    if (name === "" || /\s/.test(name)) throw new UserError(`${path}: invalid variable name "${name}"`);
    const entry = entryFor(line, "env-file");
    return entry.includes("=") ? [entry] : [];
  });
}

/** The last entry for a name wins, in its own position. */
export function newEnvironment(flags: Pick<CreateValues, "env" | "env-file">): readonly string[] {
  const entries = new Map<string, string>();
  const given = (flags.env ?? []).map((text) => entryFor(text, "env"));
  for (const entry of [...(flags["env-file"] ?? []).flatMap(entriesOf), ...given]) {
    const name = nameOf(entry);
    if (entries.get(name) !== entry) entries.delete(name);
    entries.set(name, entry);
  }
  return [...entries.values()];
}

/** Removes first; added entries then replace those of the same name. */
export function environmentAfter(
  before: readonly string[],
  flags: Pick<UpdateValues, "env-add" | "env-rm">,
): readonly string[] {
  const removed = new Set(flags["env-rm"] ?? []);
  const entries = new Map<string, string>();
  for (const entry of before) if (!removed.has(nameOf(entry))) entries.set(nameOf(entry), entry);
  for (const text of flags["env-add"] ?? []) {
    const entry = entryFor(text, "env-add");
    entries.set(nameOf(entry), entry);
  }
  return [...entries.values()];
}
