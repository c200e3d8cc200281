/**
 * What a command of the muster command line is, and how its arguments are read. Flags are written as Docker's are:
 * `--name web`, `--name=web`, `-d`; a flag may stand after an operand unless the command says that its operands are
 * somebody else's command line.
 */
import { parseArgs, type ParseArgsOptionsConfig } from "node:util";
import { examplesOf } from "./help/examples.ts";
import { didYouMean, similarTo } from "./help/suggestion.ts";
import { groupHelp, helpText } from "./help/text.ts";
import { atFlag, readsThePast } from "./at-flag.ts";
import { hostOfContext } from "./contexts.ts";
import { knownHosts } from "./last-host.ts";
import type { Shell } from "./shell.ts";
import { CommandTrace } from "./tracing.ts";
import { UserError } from "./user-error.ts";

/** A command line that cannot be understood: exit status 125, as Docker's. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

type Values<Options extends ParseArgsOptionsConfig> = ReturnType<
  typeof parseArgs<{ options: Options; allowPositionals: true; strict: true }>
>["values"];

export interface Invocation<Options extends ParseArgsOptionsConfig> {
  readonly values: Values<Options>;
  readonly operands: readonly string[];
  readonly shell: Shell;
}

export interface CommandSpec<Options extends ParseArgsOptionsConfig> {
  /** Operands as shown in the help, such as `SERVICE [SERVICE...]`. */
  readonly operands?: string;
  /** How many operands there must be. */
  readonly min?: number;
  readonly max?: number;
  /** One sentence. */
  readonly summary: string;
  readonly options: Options;
  /** From the first operand on everything is an operand. */
  readonly stopsAtOperand?: boolean;
  /** Shown at the end of the help; those of `help/examples.ts` where there are none. */
  readonly examples?: readonly Example[];
  /** What the operands are, for completion; guessed from how they are shown where it is not said. Empty: nothing. */
  readonly completes?: readonly Completable[];
  run(invocation: Invocation<Options>): Promise<void>;
}

/** A command whose options are known only to itself. */
export interface Command {
  readonly summary: string;
  /** Of a command that is a word for others, such as `service plan`: those, by their word. */
  readonly commands?: Readonly<Record<string, Command>>;
  /** What help, completion and the reference page are made of. */
  describe(name: string): CommandDescription;
  help(name: string): string;
  /** Reads the arguments and does nothing more. Throws UsageError. */
  check(name: string, args: readonly string[]): void;
  run(name: string, args: readonly string[], shell: Shell): Promise<void>;
}

/** What the help says of a flag; those of one group stand together, under the group's name. */
export interface FlagHelp {
  readonly group?: string;
  /** What the value is, in capitals. */
  readonly value?: string;
  /** What it does; its default stands in parentheses at the end. */
  readonly help?: string;
  /** What the value may be, for completion. */
  readonly completes?: Completable | readonly string[];
}

type FlagTable = Readonly<Record<string, ParseArgsOptionsConfig[string] & FlagHelp>>;

/** What a shell can complete: an object of the cluster by its name, a file, or a command. */
export type Completable =
  | "config"
  | "file"
  | "job"
  | "network"
  | "node"
  | "secret"
  | "policy"
  | "service"
  | "stack"
  | "task"
  | "verb"
  | "volume";

export interface Example {
  /** The command line, as it would be typed. */
  readonly line: string;
  /** What it is for, as half a sentence. */
  readonly does: string;
}

export interface FlagDescription extends FlagHelp {
  /** Without its dashes. */
  readonly name: string;
  readonly short: string | null;
  readonly takesValue: boolean;
  readonly isRepeated: boolean;
}

export interface CommandDescription {
  readonly name: string;
  readonly operands: string;
  readonly summary: string;
  readonly flags: readonly FlagDescription[];
  readonly examples: readonly Example[];
  readonly stopsAtOperand: boolean;
  /** Null: it is for completion to guess. */
  readonly completes: readonly Completable[] | null;
}

const control = { type: "string", short: "H", value: "SOCKET", help: "Control socket of the manager to use" } as const;
const context = {
  type: "string",
  value: "CONTEXT",
  help: "Name of the context to use (see 'muster context')",
} as const;
const help = { type: "boolean", short: "h", help: "Show this help" } as const;

/** Options that every command takes. A command with a `--host` of its own (as `service create`) leaves `-H` to this. */
function commonTo(options: ParseArgsOptionsConfig): FlagTable {
  return "host" in options ? { control, context, help } : { host: control, context, help };
}

/** `--format` and `--quiet`, which every listing takes. */
export const listingOptions = {
  format: {
    type: "string",
    value: "FORMAT",
    help: "Output format: table, json, a Go template, or 'table TEMPLATE' (default table)",
  },
  quiet: { type: "boolean", short: "q", help: "Only display IDs" },
} as const;

/** `--format` of what is a table or JSON and nothing else. */
export const plainFormat = {
  type: "string",
  value: "FORMAT",
  help: "Output format: table or json (default table)",
  completes: ["table", "json"],
} as const;

/** `--format`, which every `inspect` takes. */
export const inspectOptions = {
  format: {
    type: "string",
    short: "f",
    value: "FORMAT",
    help: "Output format: json, a Go template, or 'wire' for SwarmKit's own fields",
  },
} as const;

/** `table` or `json`; throws UsageError for anything else. */
export function formatOf(format: string | undefined): "table" | "json" {
  if (format === undefined || format === "table") return "table";
  if (format === "json") return "json";
  throw new UsageError(`--format takes 'table' or 'json', not '${format}'`);
}

/**
 * The flags of a command line as `parseArgs` knows them: each by its whole name and joined with its value (`--replicas -1`
 * becomes `--replicas=-1`, which it would refuse otherwise), and, where the command wants it, an end of them at the first
 * operand. Flags without a value go to `truths`, because of `--detach=false`: what is said last counts. Throws UsageError.
 */
function normalized(
  args: readonly string[],
  options: ParseArgsOptionsConfig,
  stopsAtOperand: boolean,
  truths: Map<string, boolean>,
): string[] {
  const out: string[] = [];
  for (let at = 0; at < args.length; at += 1) {
    const arg = args[at] as string;
    if (arg === "--" || (stopsAtOperand && !arg.startsWith("-"))) {
      return [...out, "--", ...args.slice(arg === "--" ? at + 1 : at)];
    }
    const flags = flagsIn(arg, options);
    if (flags === null) out.push(arg);
    for (const { flag, type, value } of flags ?? []) {
      if (type === "boolean") {
        truths.set(flag, saidTruth(flag, value));
        continue;
      }
      const said = value ?? args[at + 1];
      if (value === null) at += 1;
      // One that lacks its value is for `parseArgs` to refuse.
      out.push(said === undefined ? `--${flag}` : `--${flag}=${said}`);
    }
  }
  return out;
}

interface SaidFlag {
  readonly flag: string;
  readonly type: "boolean" | "string";
  /** Null: what follows, if it takes one. */
  readonly value: string | null;
}

/**
 * The flags of one argument: `--tty`, `--tty=false`, `--name=web`, `-d`, `-d=false`, `-eA=1`, `-e=A=1`, or several short
 * ones of which the last may take a value: `-dp 80:80`. Null for what is none, or unknown.
 */
function flagsIn(arg: string, options: ParseArgsOptionsConfig): readonly SaidFlag[] | null {
  const long = /^--([^=]+)(?:=(.*))?$/s.exec(arg);
  if (long !== null) {
    const [, flag = "", value] = long;
    return Object.hasOwn(options, flag)
      ? [{ flag, type: options[flag]?.type ?? "string", value: value ?? null }]
      : null;
  }
  if (!/^-[^-]/.test(arg)) return null;
  const flags: SaidFlag[] = [];
  for (let at = 1; at < arg.length; at += 1) {
    const [flag, option] = Object.entries(options).find(([, { short }]) => short === arg.charAt(at)) ?? [];
    if (flag === undefined || option === undefined) return null;
    const rest = arg.slice(at + 1);
    const isLast = option.type === "string" || rest.startsWith("=");
    const value = rest === "" || !isLast ? null : rest.startsWith("=") ? rest.slice(1) : rest;
    flags.push({ flag, type: option.type, value });
    if (isLast) break;
  }
  return flags;
}

/** `value`: as Docker's scripts write it, `--tty=false`; null for the flag alone. */
function saidTruth(flag: string, value: string | null): boolean {
  const truth = value === null ? true : truthOf(value);
  if (truth === null) throw new UsageError(`--${flag} takes true or false, not '${value}'`);
  return truth;
}

/** The words for true and false that Go knows; null for any other. */
export function truthOf(text: string): boolean | null {
  if (/^(?:1|t|T|true|True|TRUE)$/.test(text)) return true;
  return /^(?:0|f|F|false|False|FALSE)$/.test(text) ? false : null;
}

function count(min: number): string {
  return min === 1 ? "one argument" : `${min} arguments`;
}

/** Words that scripts know from Docker. */
const aliases: Readonly<Record<string, string>> = { list: "ls", remove: "rm", up: "deploy" };

/** The command of that word, or of what the word is another for; undefined when there is none. */
export function commandOf(commands: Readonly<Record<string, Command>>, word: string): Command | undefined {
  if (Object.hasOwn(commands, word)) return commands[word];
  // Of stacks alone: nobody who types `service down` means to remove it.
  const isDown = word === "down" && Object.hasOwn(commands, "deploy");
  const other = isDown ? "rm" : Object.hasOwn(aliases, word) ? (aliases[word] ?? "") : "";
  return Object.hasOwn(commands, other) ? commands[other] : undefined;
}

/** A word for several commands, within a noun. */
export function commandGroup(summary: string, commands: Readonly<Record<string, Command>>): Command {
  const words = Object.keys(commands).join("|");
  const find = (name: string, word: string | undefined): Command => {
    const found = word === undefined ? undefined : commandOf(commands, word);
    if (found === undefined) throw new UsageError(`'muster ${name}' takes ${words}: see 'muster ${name} --help'`);
    return found;
  };
  return {
    summary,
    commands,
    describe: (name) => ({
      name,
      operands: words,
      summary,
      flags: [],
      examples: [],
      stopsAtOperand: true,
      completes: [],
    }),
    help: (name) => groupHelp(name, summary, commands),
    check: (name, [word, ...rest]) => find(name, word).check(`${name} ${word}`, rest),
    async run(name, [word, ...rest], shell) {
      if (word === "--help" || word === "-h") shell.print(this.help(name).trimEnd());
      else await find(name, word).run(`${name} ${word}`, rest, shell);
    },
  };
}

/** The flag that `parseArgs` names in its error, without a value. */
function unknownFlag(error: unknown): string | null {
  return /'(--[^'=]+|-[^'])/.exec((error as Error).message)?.[1] ?? null;
}

/** The shell with the manager that a command line names, if it names one. Throws UsageError or UserError. */
export function shellFor(shell: Shell, host: string | undefined, named: string | undefined): Shell {
  if (named === undefined) return host === undefined ? shell : shell.at(host);
  if (host !== undefined) throw new UsageError("--host and --context name a manager each: set one of them");
  const [last] = knownHosts();
  const chosen = hostOfContext(named) ?? last;
  if (chosen === undefined) throw new UserError("no cluster was started on this machine: start one with 'muster up'");
  return shell.at(chosen);
}

export function command<const Options extends ParseArgsOptionsConfig>(spec: CommandSpec<Options>): Command {
  const everywhere: FlagTable = { ...spec.options, ...commonTo(spec.options) };
  const reading: FlagTable = { ...spec.options, at: atFlag, ...commonTo(spec.options) };
  /** Only a command's name tells whether it reads, and so can show the past. */
  const optionsOf = (name: string): FlagTable => (readsThePast(name) && !("at" in spec.options) ? reading : everywhere);
  const { min = 0, max = spec.operands === undefined ? 0 : Number.POSITIVE_INFINITY, stopsAtOperand = false } = spec;

  const describe = (name: string): CommandDescription => ({
    name,
    operands: spec.operands ?? "",
    summary: spec.summary,
    flags: Object.entries(optionsOf(name)).map(([flag, { help: text, multiple, short, type, ...rest }]) => ({
      ...rest,
      name: flag,
      short: short ?? null,
      takesValue: type === "string",
      isRepeated: multiple === true,
      ...(text === undefined ? {} : { help: text }),
    })),
    examples: spec.examples ?? examplesOf(name),
    stopsAtOperand,
    completes: spec.completes ?? null,
  });

  /** Flags and operands, and how many of these there are. Throws UsageError. */
  const parsed = (name: string, args: readonly string[]) => {
    const options = optionsOf(name);
    const truths = new Map<string, boolean>();
    const words = normalized(args, options, stopsAtOperand, truths);
    let values: Record<string, unknown>;
    let positionals: readonly string[];
    try {
      ({ positionals, values } = parseArgs({ args: words, options, allowPositionals: true, strict: true }));
    } catch (error) {
      const unknown = (error as { code?: string }).code === "ERR_PARSE_ARGS_UNKNOWN_OPTION" ? unknownFlag(error) : null;
      if (unknown !== null) {
        const similar = unknown.startsWith("--") ? similarTo(unknown.slice(2), Object.keys(options)) : [];
        const guess = didYouMean(similar.map((flag) => `--${flag}`));
        throw new UsageError(`unknown flag ${unknown}: ${guess}see 'muster ${name} --help'`);
      }
      // Its sentences end in advice on quoting that has no place here.
      const message = (error as Error).message.split(". ")[0]?.replace(/\n.*/s, "") ?? "";
      throw new UsageError(`${message.charAt(0).toLowerCase()}${message.slice(1)}: see 'muster ${name} --help'`);
    }
    for (const [flag, truth] of truths) values[flag] = truth;
    if (values["help"] === true) return { values, positionals };
    if (positionals.length < min)
      throw new UsageError(`'muster ${name}' needs at least ${count(min)}: see 'muster ${name} --help'`);
    if (positionals.length > max)
      throw new UsageError(`'muster ${name}' takes at most ${count(max)}: see 'muster ${name} --help'`);
    return { values, positionals };
  };

  return {
    summary: spec.summary,
    describe,
    help: (name) => helpText(describe(name)),
    check: (name, args) => void parsed(name, args),
    async run(name, args, shell) {
      const { positionals, values } = parsed(name, args);
      if (values["help"] === true) {
        shell.print(this.help(name).trimEnd());
        return;
      }
      const hostKey = "host" in spec.options ? "control" : "host";
      const isPast = optionsOf(name)["at"] === atFlag;
      const chosen = shellFor(shell, values[hostKey] as string | undefined, values["context"] as string | undefined);
      const at = isPast ? (values["at"] as string | undefined) : undefined;
      // What every command takes is not the command's: one that has a `--host` of another meaning would read this one.
      for (const key of [hostKey, "context", "help", ...(isPast ? ["at"] : [])]) delete values[key];
      const trace = new CommandTrace(name, shell.now());
      let failure: unknown = null;
      try {
        await spec.run({
          values: values as Values<Options>,
          operands: positionals,
          shell: trace.shell(at === undefined ? chosen : (await import("./past.ts")).pastShell(chosen, at)),
        });
      } catch (error) {
        failure = error;
        throw error;
      } finally {
        await trace.end(failure, shell.now());
      }
    },
  };
}
