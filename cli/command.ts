/**
 * What a command of the muster command line is, and how its arguments are read. Flags are written as Docker's are:
 * `--name web`, `--name=web`, `-d`; a flag may stand after an operand unless the command says that its operands are
 * somebody else's command line.
 */
import { parseArgs, type ParseArgsOptionsConfig } from "node:util";
import type { Shell } from "./shell.ts";
import { CommandTrace } from "./tracing.ts";

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
  run(invocation: Invocation<Options>): Promise<void>;
}

/** A command whose options are known only to itself. */
export interface Command {
  readonly summary: string;
  help(name: string): string;
  run(name: string, args: readonly string[], shell: Shell): Promise<void>;
}

/** What the help says of a flag; those of one group stand together, under the group's name. */
export interface FlagHelp {
  readonly group?: string;
  /** What the value is, in capitals. */
  readonly value?: string;
  readonly help?: string;
}

type FlagTable = Readonly<Record<string, ParseArgsOptionsConfig[string] & FlagHelp>>;

const control = { type: "string", short: "H", value: "SOCKET", help: "the manager to ask" } as const;
const help = { type: "boolean", short: "h", help: "shows this" } as const;

/** Options that every command takes. A command with a `--host` of its own (as `service create`) leaves `-H` to this. */
function commonTo(options: ParseArgsOptionsConfig): FlagTable {
  return "host" in options ? { control, help } : { host: control, help };
}

/** `--format` and `--quiet`, which every listing takes. */
export const listingOptions = {
  format: { type: "string" },
  quiet: { type: "boolean", short: "q" },
} as const;

/** `table` or `json`; throws UsageError for anything else. */
export function formatOf(format: string | undefined): "table" | "json" {
  if (format === undefined || format === "table") return "table";
  if (format === "json") return "json";
  throw new UsageError(`--format takes 'table' or 'json', not '${format}'`);
}

/**
 * Joins each flag with its value (`--replicas -1` becomes `--replicas=-1`, which `parseArgs` would refuse), takes out
 * what is said in the way of `--detach=false`, and, where the command wants it, ends the flags at the first operand.
 */
function normalized(
  args: readonly string[],
  options: ParseArgsOptionsConfig,
  stopsAtOperand: boolean,
  truths: Map<string, boolean>,
): string[] {
  const takesValue = (flag: string): boolean => {
    if (flag.startsWith("--")) return options[flag.slice(2)]?.type === "string";
    const short = Object.values(options).find((option) => option.short === flag.slice(1));
    return flag.length === 2 && short?.type === "string";
  };
  const out: string[] = [];
  for (let at = 0; at < args.length; at += 1) {
    const arg = args[at] as string;
    const said = saidTruth(arg, options);
    if (said !== null) {
      truths.set(said.flag, said.truth);
      continue;
    }
    if (arg === "--" || (stopsAtOperand && !arg.startsWith("-"))) {
      return [...out, "--", ...args.slice(arg === "--" ? at + 1 : at)];
    }
    const value = args[at + 1];
    if (!takesValue(arg) || value === undefined) {
      out.push(arg);
      continue;
    }
    const long = arg.startsWith("--") ? arg : longName(arg.slice(1), options);
    out.push(`${long}=${value}`);
    at += 1;
  }
  return out;
}

/** `--tty=false`: a boolean flag with its value, as Docker's scripts write it. */
function saidTruth(arg: string, options: ParseArgsOptionsConfig): { flag: string; truth: boolean } | null {
  const match = /^--([a-z-]+)=(.*)$/s.exec(arg);
  const flag = match?.[1] ?? "";
  if (match === null || !Object.hasOwn(options, flag) || options[flag]?.type !== "boolean") return null;
  const truth = truthOf(match[2] as string);
  if (truth === null) throw new UsageError(`--${flag} takes true or false, not '${match[2]}'`);
  return { flag, truth };
}

/** The words for true and false that Go knows; null for any other. */
export function truthOf(text: string): boolean | null {
  if (/^(?:1|t|T|true|True|TRUE)$/.test(text)) return true;
  return /^(?:0|f|F|false|False|FALSE)$/.test(text) ? false : null;
}

/** One line a flag; flags of a group beneath its name, groups in the order of their first flag. */
function helpLines(options: FlagTable): readonly string[] {
  const entries = Object.entries(options).map(([flag, { type, short, multiple, value, help: text, group }]) => {
    const shown = type === "string" ? ` ${value ?? "VALUE"}${multiple === true ? " …" : ""}` : "";
    return {
      group: group ?? "Options",
      left: `  ${short === undefined ? "    " : `-${short}, `}--${flag}${shown}`,
      text: text ?? "",
    };
  });
  const width = Math.min(helpColumnMax, Math.max(...entries.map(({ left }) => left.length)) + 2);
  const lines: string[] = [];
  for (const [group, members] of Map.groupBy(entries, (entry) => entry.group)) {
    lines.push("", `${group}:`);
    for (const { left, text } of members) lines.push(text === "" ? left : `${left.padEnd(width - 1)} ${text}`);
  }
  return lines;
}

function longName(short: string, options: ParseArgsOptionsConfig): string {
  const found = Object.entries(options).find(([, option]) => option.short === short);
  return `--${found?.[0] ?? short}`;
}

/** Wider than this the explanations would start too far right; the few longer flags push theirs along. */
const helpColumnMax = 44;

function count(min: number): string {
  return min === 1 ? "one argument" : `${min} arguments`;
}

export function command<const Options extends ParseArgsOptionsConfig>(spec: CommandSpec<Options>): Command {
  const options: FlagTable = { ...spec.options, ...commonTo(spec.options) };
  const { min = 0, max = spec.operands === undefined ? 0 : Number.POSITIVE_INFINITY, stopsAtOperand = false } = spec;
  return {
    summary: spec.summary,
    help: (name) => {
      const usage = `Usage: muster ${name} [OPTIONS]${spec.operands === undefined ? "" : ` ${spec.operands}`}`;
      return `${usage}\n\n${spec.summary}\n${helpLines(options).join("\n")}\n`;
    },
    async run(name, args, shell) {
      let parsed: { values: Record<string, unknown>; positionals: string[] };
      const truths = new Map<string, boolean>();
      const words = normalized(args, options, stopsAtOperand, truths);
      try {
        parsed = parseArgs({
          args: words,
          options,
          allowPositionals: true,
          strict: true,
        });
      } catch (error) {
        // Its sentences end in advice on quoting that has no place here.
        const message = (error as Error).message.split(". ")[0]?.replace(/\n.*/s, "") ?? "";
        throw new UsageError(`${message.charAt(0).toLowerCase()}${message.slice(1)}: see 'muster ${name} --help'`);
      }
      for (const [flag, truth] of truths) parsed.values[flag] = truth;
      if (parsed.values["help"] === true) {
        shell.print(this.help(name).trimEnd());
        return;
      }
      const { positionals } = parsed;
      if (positionals.length < min)
        throw new UsageError(`'muster ${name}' needs at least ${count(min)}: see 'muster ${name} --help'`);
      if (positionals.length > max)
        throw new UsageError(`'muster ${name}' takes at most ${count(max)}: see 'muster ${name} --help'`);
      const host = parsed.values["host" in spec.options ? "control" : "host"] as string | undefined;
      const trace = new CommandTrace(name, shell.now());
      let failure: unknown = null;
      try {
        await spec.run({
          values: parsed.values as Values<Options>,
          operands: positionals,
          shell: trace.shell(host === undefined ? shell : shell.at(host)),
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
