/** Contexts, like `docker context`: a user's names for managers, and the one that commands use by default. */
import { mkdirSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { replaceFileSync } from "../runtime/system/whole-file.ts";
import { UserError } from "../lib/user-error.ts";

/** The manager started last on this machine; always exists. */
export const defaultContext = "default";

export interface Context {
  /** The control socket, as `unix:///PATH`; or a manager on another machine, as `tcp://ADDR:PORT`. */
  readonly host: string;
  readonly description: string;
  /** User that logs in; absent for a control socket. */
  readonly user?: string;
}

/** Prefix of a shell's host for a context on another machine: the name leads to its address and files. */
const remotePrefix = "context://";

interface Contexts {
  /** Name of the current context. */
  readonly current: string;
  readonly named: ReadonlyMap<string, Context>;
}

/** Folder of this user's contexts. */
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

/** Throws UserError when the file is unreadable or invalid. */
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
    // Reported below.
  }
  throw new UserError(`invalid contexts file ${file}: fix or remove it, then create the contexts again`);
}

/** Throws UserError when the file cannot be written. */
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
 * Control socket of a context, or what `remoteContextOf` accepts; null for the default context. Throws UserError when the
 * context does not exist.
 */
export function hostOfContext(name: string): string | null {
  if (name === defaultContext) return null;
  const found = readContexts().named.get(name);
  if (found === undefined) throw new UserError(`context "${name}" not found: see 'muster context ls'`);
  return found.user === undefined ? found.host : `${remotePrefix}${name}`;
}

/** The context on another machine that `host` names; null when `host` is not such a name. Throws UserError. */
export function remoteContextOf(host: string): { readonly name: string; readonly context: Context } | null {
  if (!host.startsWith(remotePrefix)) return null;
  const name = host.slice(remotePrefix.length);
  const context = readContexts().named.get(name);
  if (context?.user === undefined) throw new UserError(`context "${name}" not found: see 'muster context ls'`);
  return { name, context };
}

/**
 * The host chosen by the environment or `muster context use`, for a command line that names none; null: the default context.
 */
export function chosenHost(): string | null {
  const { MUSTER_CONTEXT: context = "", MUSTER_HOST: host = "" } = process.env;
  if (host !== "") return host;
  return hostOfContext(context === "" ? readContexts().current : context);
}

/** Name of the context that commands use by default; null when MUSTER_HOST overrides it. */
export function currentContext(): string | null {
  const { MUSTER_CONTEXT: context = "", MUSTER_HOST: host = "" } = process.env;
  if (host !== "") return null;
  return context === "" ? readContexts().current : context;
}

/** Name of the context for a shell's host, or for the default manager if that is null; empty if it has none. */
export function contextNameOf(host: string | null): string {
  if (host === null) {
    const current = currentContext();
    return current === null || current === defaultContext ? "" : current;
  }
  if (host.startsWith(remotePrefix)) return host.slice(remotePrefix.length);
  for (const [name, { host: named }] of readContexts().named) if (named === host) return name;
  return "";
}

/** All names, for completion; empty when the file cannot be read. */
export function contextNames(): readonly string[] {
  try {
    return [defaultContext, ...readContexts().named.keys()];
  } catch {
    return [];
  }
}
