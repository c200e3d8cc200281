/** The tree of all commands, for help, completion and the reference page. */
import { commandOf, type Command } from "../command.ts";
import { UsageError } from "../../lib/user-error.ts";
import { groupHelp } from "./text.ts";

/** A command, or a noun with its own commands. */
export type Verb =
  | { readonly kind: "command"; readonly command: Command }
  | { readonly kind: "noun"; readonly commands: Readonly<Record<string, Command>> };

export interface VerbEntry {
  readonly summary: string;
  load(): Promise<Verb>;
}

export type Verbs = Readonly<Record<string, VerbEntry>>;

/** A command with its full name, such as `service plan create`. */
interface NamedCommand {
  readonly name: string;
  readonly command: Command;
}

/** Words that may follow `words`, with their summaries; null where a command takes operands. */
export async function wordsAfter(verbs: Verbs, words: readonly string[]): Promise<ReadonlyMap<string, string> | null> {
  const [name, ...rest] = words;
  if (name === undefined) return new Map(Object.entries(verbs).map(([word, { summary }]) => [word, summary]));
  const entry = Object.hasOwn(verbs, name) ? verbs[name] : undefined;
  if (entry === undefined) return null;
  const loaded = await entry.load();
  let commands = loaded.kind === "noun" ? loaded.commands : (loaded.command.commands ?? null);
  for (const word of rest) {
    const found = commands === null ? undefined : commandOf(commands, word);
    if (found === undefined) return null;
    commands = found.commands ?? null;
  }
  return commands === null ? null : new Map(Object.entries(commands).map(([word, { summary }]) => [word, summary]));
}

/** The command at the start of `words`, and the length of its name in words; null if there is none. */
export async function commandAt(
  verbs: Verbs,
  words: readonly string[],
): Promise<{ readonly found: NamedCommand; readonly length: number } | null> {
  const [name, ...rest] = words;
  const entry = name !== undefined && Object.hasOwn(verbs, name) ? verbs[name] : undefined;
  if (name === undefined || entry === undefined) return null;
  const loaded = await entry.load();
  let command: Command | null = loaded.kind === "command" ? loaded.command : null;
  let commands = loaded.kind === "noun" ? loaded.commands : loaded.command.commands;
  let length = 1;
  for (const word of rest) {
    const next: Command | undefined = commands === undefined ? undefined : commandOf(commands, word);
    if (next === undefined) break;
    command = next;
    commands = next.commands;
    length += 1;
  }
  if (command === null) return null;
  return { found: { name: words.slice(0, length).join(" "), command }, length };
}

/** Every command that can be run, in the order of the help. */
export async function allCommands(verbs: Verbs): Promise<readonly NamedCommand[]> {
  const found: NamedCommand[] = [];
  const add = (name: string, command: Command): void => {
    if (command.commands === undefined) found.push({ name, command });
    else for (const [word, each] of Object.entries(command.commands)) add(`${name} ${word}`, each);
  };
  for (const [name, entry] of Object.entries(verbs)) {
    const loaded = await entry.load();
    if (loaded.kind === "command") add(name, loaded.command);
    else for (const [word, command] of Object.entries(loaded.commands)) add(`${name} ${word}`, command);
  }
  return found;
}

function overview(verbs: Verbs): string {
  const width = Math.max(...Object.keys(verbs).map((name) => name.length)) + 3;
  const lines = Object.entries(verbs).map(([name, { summary }]) => `  ${name.padEnd(width)}${summary}`);
  return [
    "Usage: muster [--host SOCKET | --context CONTEXT] VERB …",
    "",
    ...lines,
    "",
    "Run 'muster VERB --help' for more information. --host, --context, MUSTER_HOST or MUSTER_CONTEXT selects the manager;",
    "default: the one set with 'muster context use', or else the one started last on this machine.",
  ].join("\n");
}

/** Help of the command that `words` name; without words, the overview. Throws UsageError. */
export async function helpOf(verbs: Verbs, words: readonly string[]): Promise<string> {
  const [name] = words;
  if (name === undefined) return overview(verbs);
  const entry = Object.hasOwn(verbs, name) ? verbs[name] : undefined;
  if (entry === undefined) throw new UsageError(`unknown command: muster ${name}: see 'muster --help'`);
  const at = await commandAt(verbs, words);
  const missing = words.slice(at?.length ?? 1)[0];
  if (missing !== undefined) {
    const known = at?.found.name ?? name;
    throw new UsageError(`unknown command: muster ${known} ${missing}: see 'muster ${known} --help'`);
  }
  if (at !== null) return at.found.command.help(at.found.name);
  const loaded = await entry.load();
  return loaded.kind === "noun" ? groupHelp(name, entry.summary, loaded.commands) : loaded.command.help(name);
}
