/** From arguments to an exit status: 0, 1 with one sentence, or 125 for a command line that cannot be understood. */
import { RpcError, Status } from "../runtime/rpc.ts";
import { commandOf, shellFor, UsageError } from "./command.ts";
import type { Shell } from "./shell.ts";
import { CommandEnded, UserError } from "./user-error.ts";
import { verbs, type Verb } from "./verbs.ts";

function isHelp(arg: string | undefined): boolean {
  return arg === "--help" || arg === "-h" || arg === "help";
}

/** Takes `--host SOCKET` or `--context CONTEXT` off the front. */
function withHost(args: readonly string[], shell: Shell): { readonly args: readonly string[]; readonly shell: Shell } {
  const [first = "", second] = args;
  if (first.startsWith("--host=")) return { args: args.slice(1), shell: shell.at(first.slice("--host=".length)) };
  if (first.startsWith("--context="))
    return { args: args.slice(1), shell: shellFor(shell, undefined, first.slice("--context=".length)) };
  if (first === "--context") {
    if (second === undefined) throw new UsageError("--context needs the name of a context: see 'muster context ls'");
    return { args: args.slice(2), shell: shellFor(shell, undefined, second) };
  }
  if (first !== "--host" && first !== "-H") return { args, shell };
  if (second === undefined) throw new UsageError("--host needs the control socket of a manager");
  return { args: args.slice(2), shell: shell.at(second) };
}

/**
 * For words that are no command: what to do instead, where they are known from Docker, else the commands that may have been
 * meant, and where to look. `known`: the words that could stand in place of the last.
 */
async function unknownCommand(words: string, known: readonly string[]): Promise<UsageError> {
  // Loaded where it is needed: nobody else pays for it.
  const [{ insteadOf }, { didYouMean, similarTo }] = await Promise.all([
    import("./docker-words.ts"),
    import("./help/suggestion.ts"),
  ]);
  const advice = insteadOf(words);
  if (advice !== null) return new UsageError(`there is no 'muster ${words}': ${advice}`);
  const at = words.lastIndexOf(" ");
  const [noun, word] = at < 0 ? ["", words] : [words.slice(0, at), words.slice(at + 1)];
  const what = noun === "" ? "a muster command" : `a command of 'muster ${noun}'`;
  const guess = didYouMean(similarTo(word, known));
  return new UsageError(`'${word}' is not ${what}: ${guess}see 'muster ${noun === "" ? "" : `${noun} `}--help'`);
}

async function runVerb(name: string, loaded: Verb, args: readonly string[], shell: Shell): Promise<void> {
  if (loaded.kind === "command") return loaded.command.run(name, args, shell);
  const [sub, ...rest] = args;
  if (sub === undefined || isHelp(sub)) return printHelp([name, ...rest.filter((word) => !isHelp(word))], shell);
  const found = commandOf(loaded.commands, sub);
  if (found === undefined) throw await unknownCommand(`${name} ${sub}`, Object.keys(loaded.commands));
  return found.run(`${name} ${sub}`, rest, shell);
}

async function printHelp(words: readonly string[], shell: Shell): Promise<void> {
  const { helpOf } = await import("./help/tree.ts");
  shell.print((await helpOf(words)).trimEnd());
}

async function dispatch(given: readonly string[], outer: Shell): Promise<void> {
  const { args, shell } = withHost(given, outer);
  const [name, ...rest] = args;
  if (name === undefined || isHelp(name)) return printHelp(name === "help" ? rest : [], shell);
  if (name === "--version" || name === "-v" || name === "version") {
    const { version } = await import("./version.ts");
    return shell.print(`muster ${version}`);
  }
  const entry = Object.hasOwn(verbs, name) ? verbs[name] : undefined;
  if (entry === undefined) throw await unknownCommand(name, Object.keys(verbs));
  return runVerb(name, await entry.load(), rest, shell);
}

/** One sentence for what went wrong; null for a fault of ours, whose stack somebody will want. */
function sentenceFor(error: unknown): string | null {
  if (error instanceof UsageError || error instanceof UserError) return error.message;
  if (!(error instanceof RpcError)) return null;
  if (error.code === Status.UNIMPLEMENTED && error.message === "") return "the manager does not know this call";
  if (error.code === Status.DEADLINE_EXCEEDED) return "the manager did not answer in time";
  // Of a connection that was open when its certificate expired, or whose root was replaced.
  const rejected = /client certificate not accepted: (.*)/.exec(error.message)?.[1];
  if (error.code === Status.PERMISSION_DENIED && rejected !== undefined)
    return `the manager does not accept the certificate (${rejected}): log in again with 'muster login'`;
  return error.message;
}

export async function run(args: readonly string[], shell: Shell): Promise<number> {
  try {
    await dispatch(args, shell);
    return 0;
  } catch (error) {
    if (error instanceof CommandEnded) return error.status;
    const sentence = sentenceFor(error);
    if (sentence === null) throw error;
    shell.remark(`muster: ${sentence}`);
    return error instanceof UsageError ? 125 : 1;
  }
}
