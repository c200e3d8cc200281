/** Runs a command line. Exit status: 0, 1 with an error message, or 125 for an invalid command line. */
import { RpcError, Status } from "../runtime/ports/rpc.ts";
import { commandOf, shellFor } from "./command.ts";
import { UsageError } from "../lib/user-error.ts";
import type { Shell } from "./shell.ts";
import { CommandEnded, UserError } from "../lib/user-error.ts";
import type { Verb } from "./help/tree.ts";
import { verbs } from "./verbs.ts";

function isHelp(arg: string | undefined): boolean {
  return arg === "--help" || arg === "-h" || arg === "help";
}

/** Strips a leading `--host SOCKET` or `--context CONTEXT`. */
function withHost(args: readonly string[], shell: Shell): { readonly args: readonly string[]; readonly shell: Shell } {
  const [first = "", second] = args;
  if (first.startsWith("--host=")) return { args: args.slice(1), shell: shell.at(first.slice("--host=".length)) };
  if (first.startsWith("--context="))
    return { args: args.slice(1), shell: shellFor(shell, undefined, first.slice("--context=".length)) };
  if (first === "--context") {
    if (second === undefined) throw new UsageError("flag needs an argument: --context: see 'muster context ls'");
    return { args: args.slice(2), shell: shellFor(shell, undefined, second) };
  }
  if (first !== "--host" && first !== "-H") return { args, shell };
  if (second === undefined)
    throw new UsageError("flag needs an argument: --host: expected the control socket of a manager");
  return { args: args.slice(2), shell: shell.at(second) };
}

/**
 * The error for an unknown command: what to use instead of a Docker command, else similar commands, and where to look. `known`:
 * the commands that could replace the last word.
 */
async function unknownCommand(words: string, known: readonly string[]): Promise<UsageError> {
  // Loaded only here: other commands start faster.
  const [{ insteadOf }, { didYouMean, similarTo }] = await Promise.all([
    import("./docker-words.ts"),
    import("./help/suggestion.ts"),
  ]);
  const advice = insteadOf(words);
  if (advice !== null) return new UsageError(`unknown command: muster ${words}: ${advice}`);
  const at = words.lastIndexOf(" ");
  const [noun, word] = at < 0 ? ["", words] : [words.slice(0, at), words.slice(at + 1)];
  const guess = didYouMean(similarTo(word, known));
  return new UsageError(
    `unknown command: muster ${words}: ${guess}see 'muster ${noun === "" ? "" : `${noun} `}--help'`,
  );
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
  shell.print((await helpOf(verbs, words)).trimEnd());
}

async function dispatch(given: readonly string[], outer: Shell): Promise<void> {
  const { args, shell } = withHost(given, outer);
  const [name, ...rest] = args;
  if (name === undefined || isHelp(name)) return printHelp(name === "help" ? rest : [], shell);
  const verb = name === "--version" || name === "-v" ? "version" : name;
  const entry = Object.hasOwn(verbs, verb) ? verbs[verb] : undefined;
  if (entry === undefined) throw await unknownCommand(verb, Object.keys(verbs));
  return runVerb(verb, await entry.load(), rest, shell);
}

/** The error message for users; null for an internal error, whose stack is needed. */
function sentenceFor(error: unknown): string | null {
  if (error instanceof UsageError || error instanceof UserError) return error.message;
  if (!(error instanceof RpcError)) return null;
  if (error.code === Status.UNIMPLEMENTED && error.message === "") return "the manager does not support this call";
  if (error.code === Status.DEADLINE_EXCEEDED) return "the manager did not answer in time";
  // The certificate expired, or its root was replaced, while the connection was open.
  const rejected = /client certificate not accepted: (.*)/.exec(error.message)?.[1];
  if (error.code === Status.PERMISSION_DENIED && rejected !== undefined)
    return `the manager rejects the certificate (${rejected}): log in again with 'muster login'`;
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
