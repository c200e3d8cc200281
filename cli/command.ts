/**
 * Definition of a command, and parsing of its arguments. Flags are written like Docker's: `--name web`, `--name=web`, `-d`. A
 * flag may follow an operand unless the operands are another program's command line.
 */
import { parseArgs, type ParseArgsOptionsConfig } from "node:util";
import { examplesOf } from "./help/examples.ts";
import { didYouMean, similarTo } from "./help/suggestion.ts";
import { groupHelp, helpText } from "./help/text.ts";
import { atFlag, readsThePast } from "./at-flag.ts";
import { hostOfContext } from "./contexts.ts";
import { knownHosts } from "../processes/last-host.ts";
import type { Shell } from "./shell.ts";
import { CommandTrace } from "./tracing.ts";
import { UsageError, UserError } from "../lib/user-error.ts";
import type { CommandDescription, Completable, Example, FlagHelp } from "./help/description.ts";
import { parseBoolean } from "./boolean.ts";
import type { SettingValue } from "./settings/layers.ts";

export type Values<Options extends ParseArgsOptionsConfig> = ReturnType<
  typeof parseArgs<{ options: Options; allowPositionals: true; strict: true }>
>["values"];

interface Invocation<Options extends ParseArgsOptionsConfig> {
  readonly values: Values<Options>;
  readonly operands: readonly string[];
  readonly shell: Shell;
  /** Reads the settings of a configurable command again; null for other commands. */
  readonly reread: (() => Rereading<Values<Options>>) | null;
}

/** Settings that have been read again. */
export interface Rereading<Options> {
  readonly values: Options;
  /** Names of the flags whose values have changed. */
  readonly changed: readonly string[];
}

interface CommandSpec<Options extends ParseArgsOptionsConfig> {
  /** Operands as shown in the help, such as `SERVICE [SERVICE...]`. */
  readonly operands?: string;
  /** Number of operands. */
  readonly min?: number;
  readonly max?: number;
  /** One sentence. */
  readonly summary: string;
  readonly options: Options;
  /** Everything after the first operand is an operand, too. */
  readonly stopsAtOperand?: boolean;
  /**
   * For a long-running process: its flags can also be set by the environment and by a file (`cli/settings/`). The function checks
   * their values like `run`, starts nothing, and throws or rejects with UsageError or UserError.
   */
  readonly checkSettings?: (values: Values<Options>) => unknown;
  /** Shown at the end of the help; default: those of `help/examples.ts`. */
  readonly examples?: readonly Example[];
  /** Completions of the operands; default: guessed from `operands`. Empty: no completion. */
  readonly completes?: readonly Completable[];
  run(invocation: Invocation<Options>): Promise<void>;
}

/** A command with its options hidden. */
export interface Command {
  readonly summary: string;
  /** Subcommands by name, for a command such as `service plan`. */
  readonly commands?: Readonly<Record<string, Command>>;
  /** Input of help, completion and the reference page. */
  describe(name: string): CommandDescription;
  help(name: string): string;
  /** Parses the arguments without running the command. Throws UsageError. */
  check(name: string, args: readonly string[]): void;
  /** Checks the values of settings; null if the command has none. Rejects with UsageError and UserError. */
  readonly checkSettings: ((values: Readonly<Record<string, SettingValue>>) => Promise<void>) | null;
  run(name: string, args: readonly string[], shell: Shell): Promise<void>;
}

type FlagTable = Readonly<Record<string, ParseArgsOptionsConfig[string] & FlagHelp>>;

const control = { type: "string", short: "H", value: "SOCKET", help: "Control socket of the manager to use" } as const;
const context = {
  type: "string",
  value: "CONTEXT",
  help: "Name of the context to use (see 'muster context')",
} as const;
const help = { type: "boolean", short: "h", help: "Show this help" } as const;
const config = {
  type: "string",
  value: "FILE",
  help: "YAML file with settings: the names of these options without dashes (default: MUSTER_CONFIG)",
  completes: "file",
} as const;

/**
 * Options of every command. For a command with its own `--host` (such as `service create`), the manager's is `-H` or
 * `--control`.
 */
function commonTo(options: ParseArgsOptionsConfig): FlagTable {
  return "host" in options ? { control, context, help } : { host: control, context, help };
}

/** `--format` and `--quiet` of every listing. */
export const listingOptions = {
  format: {
    type: "string",
    value: "FORMAT",
    help: "Output format: table, json, a Go template, or 'table TEMPLATE' (default table)",
  },
  quiet: { type: "boolean", short: "q", help: "Only display IDs" },
} as const;

/** `--format` of commands that print a table or JSON only. */
export const plainFormat = {
  type: "string",
  value: "FORMAT",
  help: "Output format: table or json (default table)",
  completes: ["table", "json"],
} as const;

/** `--format` of every `inspect`. */
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
  throw new UsageError(`invalid argument "${format}" for "--format" flag: expected table or json`);
}

/**
 * Rewrites flags for `parseArgs`: each by its full name and joined with its value, since `parseArgs` rejects `--replicas -1`
 * but accepts `--replicas=-1`; where the command requires it, flags end at the first operand. Values of boolean flags go to
 * `truths`, to support `--detach=false`; the last one wins. Throws UsageError.
 */
function normalized(
  args: readonly string[],
  options: ParseArgsOptionsConfig,
  stopsAtOperand: boolean,
  booleans: Map<string, boolean>,
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
        booleans.set(flag, booleanOf(flag, value));
        continue;
      }
      const given = value ?? args[at + 1];
      if (value === null) at += 1;
      // `parseArgs` rejects a missing value.
      out.push(given === undefined ? `--${flag}` : `--${flag}=${given}`);
    }
  }
  return out;
}

interface GivenFlag {
  readonly flag: string;
  readonly type: "boolean" | "string";
  /** Null: the next argument, if the flag takes a value. */
  readonly value: string | null;
}

/**
 * Parses one argument: `--tty`, `--tty=false`, `--name=web`, `-d`, `-d=false`, `-eA=1`, `-e=A=1`, or several short flags of
 * which the last may take a value: `-dp 80:80`. Null when it is not a flag, or is unknown.
 */
function flagsIn(arg: string, options: ParseArgsOptionsConfig): readonly GivenFlag[] | null {
  const long = /^--([^=]+)(?:=(.*))?$/s.exec(arg);
  if (long !== null) {
    const [, flag = "", value] = long;
    return Object.hasOwn(options, flag)
      ? [{ flag, type: options[flag]?.type ?? "string", value: value ?? null }]
      : null;
  }
  if (!/^-[^-]/.test(arg)) return null;
  const flags: GivenFlag[] = [];
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

/** `value`: such as `false` in `--tty=false`; null for the flag alone. */
function booleanOf(flag: string, value: string | null): boolean {
  const parsed = value === null ? true : parseBoolean(value);
  if (parsed === null) throw new UsageError(`invalid argument "${value}" for "--${flag}" flag: expected true or false`);
  return parsed;
}

function count(min: number): string {
  return min === 1 ? "1 argument" : `${min} arguments`;
}

function most(min: number, max: number): string {
  if (max === 0) return "accepts no arguments";
  return `requires ${min === max ? "" : "at most "}${count(max)}`;
}

/** Docker's aliases. */
const aliases: Readonly<Record<string, string>> = { list: "ls", remove: "rm", up: "deploy" };

/** The command named `word`, or aliased by it; undefined if there is none. */
export function commandOf(commands: Readonly<Record<string, Command>>, word: string): Command | undefined {
  if (Object.hasOwn(commands, word)) return commands[word];
  // Only for stacks: `service down` does not mean to remove it.
  const isDown = word === "down" && Object.hasOwn(commands, "deploy");
  const other = isDown ? "rm" : Object.hasOwn(aliases, word) ? (aliases[word] ?? "") : "";
  return Object.hasOwn(commands, other) ? commands[other] : undefined;
}

/** A group of commands below a noun. */
export function commandGroup(summary: string, commands: Readonly<Record<string, Command>>): Command {
  const words = Object.keys(commands).join("|");
  const find = (name: string, word: string | undefined): Command => {
    const found = word === undefined ? undefined : commandOf(commands, word);
    if (found === undefined)
      throw new UsageError(`'muster ${name}' requires a subcommand (${words}): see 'muster ${name} --help'`);
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
      isConfigurable: false,
      completes: [],
    }),
    checkSettings: null,
    help: (name) => groupHelp(name, summary, commands),
    check: (name, [word, ...rest]) => find(name, word).check(`${name} ${word}`, rest),
    async run(name, [word, ...rest], shell) {
      if (word === "--help" || word === "-h") shell.print(this.help(name).trimEnd());
      else await find(name, word).run(`${name} ${word}`, rest, shell);
    },
  };
}

/** The flag in an error of `parseArgs`, without its value. */
function unknownFlag(error: unknown): string | null {
  return /'(--[^'=]+|-[^'])/.exec((error as Error).message)?.[1] ?? null;
}

/** The shell connected to the manager that the command line names, if any. Throws UsageError or UserError. */
export function shellFor(shell: Shell, host: string | undefined, named: string | undefined): Shell {
  if (named === undefined) return host === undefined ? shell : shell.at(host);
  if (host !== undefined) throw new UsageError("--host and --context are mutually exclusive: set one of them");
  const [last] = knownHosts();
  const chosen = hostOfContext(named) ?? last;
  if (chosen === undefined) throw new UserError("no cluster was started on this machine: start one with 'muster up'");
  return shell.at(chosen);
}

export function command<const Options extends ParseArgsOptionsConfig>(spec: CommandSpec<Options>): Command {
  const { checkSettings } = spec;
  const isConfigurable = checkSettings !== undefined;
  const everywhere: FlagTable = { ...spec.options, ...(isConfigurable ? { config } : {}), ...commonTo(spec.options) };
  const reading: FlagTable = { ...spec.options, at: atFlag, ...commonTo(spec.options) };
  /** Whether a command accepts `--at` depends on its name. */
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
      isSetting: isConfigurable && Object.hasOwn(spec.options, flag) && rest.onlyOnce !== true,
      ...(text === undefined ? {} : { help: text }),
    })),
    examples: spec.examples ?? examplesOf(name),
    stopsAtOperand,
    isConfigurable,
    completes: spec.completes ?? null,
  });

  /** Parses flags and operands, and checks the number of operands. Throws UsageError. */
  const parsed = (name: string, args: readonly string[]) => {
    const options = optionsOf(name);
    const booleans = new Map<string, boolean>();
    const words = normalized(args, options, stopsAtOperand, booleans);
    let values: Record<string, unknown>;
    let positionals: readonly string[];
    try {
      ({ positionals, values } = parseArgs({ args: words, options, allowPositionals: true, strict: true }));
    } catch (error) {
      const unknown = (error as { code?: string }).code === "ERR_PARSE_ARGS_UNKNOWN_OPTION" ? unknownFlag(error) : null;
      if (unknown !== null) {
        const similar = unknown.startsWith("--") ? similarTo(unknown.slice(2), Object.keys(options)) : [];
        const guess = didYouMean(similar.map((flag) => `--${flag}`));
        throw new UsageError(`unknown flag: ${unknown}: ${guess}see 'muster ${name} --help'`);
      }
      const missing = /'(?:-\w, )?(--[^ ']+)[^']*' argument missing/.exec((error as Error).message)?.[1];
      if (missing !== undefined)
        throw new UsageError(`flag needs an argument: ${missing}: see 'muster ${name} --help'`);
      // Node's advice on quoting is dropped.
      const message = (error as Error).message.split(". ")[0]?.replace(/\n.*/s, "") ?? "";
      throw new UsageError(`${message.charAt(0).toLowerCase()}${message.slice(1)}: see 'muster ${name} --help'`);
    }
    for (const [flag, parsed] of booleans) values[flag] = parsed;
    if (values["help"] === true) return { values, positionals };
    if (positionals.length < min)
      throw new UsageError(
        `'muster ${name}' requires ${min === max ? "" : "at least "}${count(min)}: see 'muster ${name} --help'`,
      );
    if (positionals.length > max)
      throw new UsageError(`'muster ${name}' ${most(min, max)}: see 'muster ${name} --help'`);
    return { values, positionals };
  };

  return {
    summary: spec.summary,
    describe,
    help: (name) => helpText(describe(name)),
    check: (name, args) => void parsed(name, args),
    checkSettings:
      checkSettings === undefined
        ? null
        : async (values) => {
            await checkSettings(values as Values<Options>);
          },
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
      // Common options are not passed on: a command whose own `--host` means something else must not see this one.
      for (const key of [hostKey, "context", "help", ...(isPast ? ["at"] : [])]) delete values[key];
      // Loaded only here: other commands start faster.
      const settings = isConfigurable
        ? await (
            await import("./settings/process-settings.ts")
          ).ProcessSettings.open(describe(name).flags, values, process.env)
        : null;
      settings?.hideFrom(process.env);
      for (const note of settings?.notes() ?? []) shell.remark(note);
      const trace = new CommandTrace(name, shell.now());
      let failure: unknown = null;
      try {
        await spec.run({
          values: (settings?.values() ?? values) as Values<Options>,
          operands: positionals,
          reread: settings && (() => ({ changed: settings.reread(), values: settings.values() as Values<Options> })),
          shell: trace.shell(at === undefined ? chosen : (await import("./past.ts")).pastShell(chosen, at)),
        });
      } catch (error) {
        failure = settings?.located(error) ?? error;
        throw failure;
      } finally {
        await trace.end(failure, shell.now());
      }
    },
  };
}
