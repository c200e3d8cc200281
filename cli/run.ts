/** From arguments to an exit status: 0, 1 with one sentence, or 125 for a command line that cannot be understood. */
import { RpcError, Status } from "../runtime/rpc.ts";
import { UsageError } from "./command.ts";
import type { Shell } from "./shell.ts";
import { UserError } from "./user-error.ts";
import { verbs, type Verb } from "./verbs.ts";

function overview(): string {
  const width = Math.max(...Object.keys(verbs).map((name) => name.length)) + 3;
  const lines = Object.entries(verbs).map(([name, { summary }]) => `  ${name.padEnd(width)}${summary}`);
  return [
    "Usage: muster [--host SOCKET] VERB …",
    "",
    ...lines,
    "",
    "'muster VERB --help' says more. MUSTER_HOST or --host chooses the manager; else it is the one started last here.",
  ].join("\n");
}

function isHelp(arg: string | undefined): boolean {
  return arg === "--help" || arg === "-h" || arg === "help";
}

/** Takes `--host SOCKET` off the front. */
function withHost(args: readonly string[], shell: Shell): { readonly args: readonly string[]; readonly shell: Shell } {
  const [first = "", second] = args;
  if (first.startsWith("--host=")) return { args: args.slice(1), shell: shell.at(first.slice("--host=".length)) };
  if (first !== "--host" && first !== "-H") return { args, shell };
  if (second === undefined) throw new UsageError("--host needs the control socket of a manager");
  return { args: args.slice(2), shell: shell.at(second) };
}

async function runVerb(name: string, loaded: Verb, args: readonly string[], shell: Shell): Promise<void> {
  if (loaded.kind === "command") return loaded.command.run(name, args, shell);
  const [sub, ...rest] = args;
  if (sub === undefined || isHelp(sub)) {
    const lines = Object.entries(loaded.commands).map(([word, { summary }]) => `  ${word.padEnd(10)}${summary}`);
    shell.print([`Usage: muster ${name} COMMAND`, "", ...lines].join("\n"));
    return undefined;
  }
  const found = Object.hasOwn(loaded.commands, sub) ? loaded.commands[sub] : undefined;
  if (found === undefined)
    throw new UsageError(`'${sub}' is not a command of 'muster ${name}': see 'muster ${name} --help'`);
  return found.run(`${name} ${sub}`, rest, shell);
}

async function dispatch(given: readonly string[], outer: Shell): Promise<void> {
  const { args, shell } = withHost(given, outer);
  const [name, ...rest] = args;
  if (name === undefined || isHelp(name)) {
    shell.print(overview());
    return;
  }
  if (name === "--version" || name === "version") {
    const { version } = await import("./version.ts");
    shell.print(`muster ${version}`);
    return;
  }
  const entry = Object.hasOwn(verbs, name) ? verbs[name] : undefined;
  if (entry === undefined) throw new UsageError(`'${name}' is not a muster command: see 'muster --help'`);
  await runVerb(name, await entry.load(), rest, shell);
}

/** One sentence for what went wrong; null for a fault of ours, whose stack somebody will want. */
function sentenceFor(error: unknown): string | null {
  if (error instanceof UsageError || error instanceof UserError) return error.message;
  if (!(error instanceof RpcError)) return null;
  if (error.code === Status.UNIMPLEMENTED && error.message === "") return "the manager does not know this call";
  if (error.code === Status.DEADLINE_EXCEEDED) return "the manager did not answer in time";
  return error.message;
}

export async function run(args: readonly string[], shell: Shell): Promise<number> {
  try {
    await dispatch(args, shell);
    return 0;
  } catch (error) {
    const sentence = sentenceFor(error);
    if (sentence === null) throw error;
    shell.remark(`muster: ${sentence}`);
    return error instanceof UsageError ? 125 : 1;
  }
}
