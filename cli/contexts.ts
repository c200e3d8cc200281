/** Names for managers, as `docker context` has them: kept for a user, with the one that commands use when they name none. */
import { mkdirSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { replaceFileSync } from "../runtime/system/whole-file.ts";
import { UserError } from "./user-error.ts";

/** The manager started last on this machine; always there. */
export const defaultContext = "default";

export interface Context {
  /** The control socket, as `unix:///PATH`; or a manager on another machine, as `tcp://ADDR:PORT`. */
  readonly host: string;
  readonly description: string;
  /** Who logs in there; absent for a control socket. */
  readonly user?: string;
}

/** How a shell is told of a context whose manager is on another machine: the name leads to the address and to its files. */
const remotePrefix = "context://";

export interface Contexts {
  /** The name of the one in use. */
  readonly current: string;
  readonly named: ReadonlyMap<string, Context>;
}

/** Where this user's contexts are. */
export function contextsFolder(): string {
  const config = process.env["XDG_CONFIG_HOME"] ?? "";
  return join(config === "" ? join(homedir(), ".config") : config, "muster");
}

const contextsFile = (): string => join(contextsFolder(), "contexts.json");

function isContext(value: unknown): value is Context {
  const { host, description, user } = (value ?? {}) as Partial<Context>;
  const isRemote = typeof host === "string" && host.startsWith("tcp://");
  return (
    typeof host === "string" && typeof description === "string" && typeof user === (isRemote ? "string" : "undefined")
  );
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

/**
 * The control socket of a context, or what `remoteContextOf` understands; null for the default one. Throws UserError for a name that
 * no context has.
 */
export function hostOfContext(name: string): string | null {
  if (name === defaultContext) return null;
  const found = readContexts().named.get(name);
  if (found === undefined) throw new UserError(`context "${name}" not found: see 'muster context ls'`);
  return found.user === undefined ? found.host : `${remotePrefix}${name}`;
}

/** The context of that name whose manager is on another machine; null where `host` is no such name. Throws UserError. */
export function remoteContextOf(host: string): { readonly name: string; readonly context: Context } | null {
  if (!host.startsWith(remotePrefix)) return null;
  const name = host.slice(remotePrefix.length);
  const context = readContexts().named.get(name);
  if (context?.user === undefined) throw new UserError(`context "${name}" not found: see 'muster context ls'`);
  return { name, context };
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
