/** Names for managers, as `docker context` has them: kept for a user, with the one that commands use when they name none. */
import { mkdirSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { replaceFileSync } from "../runtime/system/whole-file.ts";
import { UserError } from "./user-error.ts";

/** The manager started last on this machine; always there. */
export const defaultContext = "default";

export interface Context {
  /** The control socket, as `unix:///PATH`. */
  readonly host: string;
  readonly description: string;
}

export interface Contexts {
  /** The name of the one in use. */
  readonly current: string;
  readonly named: ReadonlyMap<string, Context>;
}

function contextsFile(): string {
  const config = process.env["XDG_CONFIG_HOME"] ?? "";
  return join(config === "" ? join(homedir(), ".config") : config, "muster", "contexts.json");
}

function isContext(value: unknown): value is Context {
  const { host, description } = (value ?? {}) as Partial<Context>;
  return typeof host === "string" && typeof description === "string";
}

/** Throws UserError for a file that cannot be understood. */
export function readContexts(): Contexts {
  const file = contextsFile();
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return { current: defaultContext, named: new Map() };
    throw new UserError(`cannot read the contexts in ${file}: ${(error as Error).message}`, { cause: error });
  }
  try {
    const { contexts, current } = JSON.parse(text) as { readonly current: unknown; readonly contexts: object };
    const named = Object.entries(contexts) as (readonly [string, unknown])[];
    if (typeof current === "string" && named.every(([, context]) => isContext(context)))
      return { current, named: new Map(named as (readonly [string, Context])[]) };
  } catch {
    // Said below.
  }
  throw new UserError(`cannot understand the contexts in ${file}: mend or remove the file, then create them anew`);
}

/** Throws UserError where the file cannot be written. */
export function writeContexts({ current, named }: Contexts): void {
  const file = contextsFile();
  try {
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    replaceFileSync(file, `${JSON.stringify({ current, contexts: Object.fromEntries(named) }, null, 2)}\n`);
  } catch (error) {
    throw new UserError(`cannot write the contexts to ${file}: ${(error as Error).message}`, { cause: error });
  }
}

/** The control socket of a context; null for the default one. Throws UserError for a name that no context has. */
export function hostOfContext(name: string): string | null {
  if (name === defaultContext) return null;
  const found = readContexts().named.get(name);
  if (found === undefined) throw new UserError(`context "${name}" not found: see 'muster context ls'`);
  return found.host;
}

/** What the environment and `muster context use` choose, when a command line names no manager; null: the default context. */
export function chosenHost(): string | null {
  const { MUSTER_CONTEXT: context = "", MUSTER_HOST: host = "" } = process.env;
  if (host !== "") return host;
  return hostOfContext(context === "" ? readContexts().current : context);
}

/** The name of the context that commands use when they name none; null where MUSTER_HOST overrides them all. */
export function currentContext(): string | null {
  const { MUSTER_CONTEXT: context = "", MUSTER_HOST: host = "" } = process.env;
  if (host !== "") return null;
  return context === "" ? readContexts().current : context;
}

/** All names, for completion; none where the file cannot be read. */
export function contextNames(): readonly string[] {
  try {
    return [defaultContext, ...readContexts().named.keys()];
  } catch {
    return [];
  }
}
