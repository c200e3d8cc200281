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

/** Options that every command takes. */
const common = { host: { type: "string", short: "H" }, help: { type: "boolean", short: "h" } } as const;

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
 * Joins each flag with its value (`--replicas -1` becomes `--replicas=-1`, which `parseArgs` would refuse), and, where
 * the command wants it, ends the flags at the first operand.
 */
function normalized(args: readonly string[], options: ParseArgsOptionsConfig, stopsAtOperand: boolean): string[] {
  const takesValue = (flag: string): boolean => {
    if (flag.startsWith("--")) return options[flag.slice(2)]?.type === "string";
    const short = Object.values(options).find((option) => option.short === flag.slice(1));
    return flag.length === 2 && short?.type === "string";
  };
  const out: string[] = [];
  for (let at = 0; at < args.length; at += 1) {
    const arg = args[at] as string;
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

function longName(short: string, options: ParseArgsOptionsConfig): string {
  const found = Object.entries(options).find(([, option]) => option.short === short);
  return `--${found?.[0] ?? short}`;
}

function count(min: number): string {
  return min === 1 ? "one argument" : `${min} arguments`;
}

export function command<const Options extends ParseArgsOptionsConfig>(spec: CommandSpec<Options>): Command {
  const options = { ...common, ...spec.options };
  const { min = 0, max = spec.operands === undefined ? 0 : Number.POSITIVE_INFINITY, stopsAtOperand = false } = spec;
  return {
    summary: spec.summary,
    help: (name) => {
      const flags = Object.entries(options as ParseArgsOptionsConfig).map(([flag, { type, short, multiple }]) => {
        const value = type === "string" ? ` VALUE${multiple === true ? " …" : ""}` : "";
        return `  ${short === undefined ? "    " : `-${short}, `}--${flag}${value}`;
      });
      const usage = `Usage: muster ${name} [OPTIONS]${spec.operands === undefined ? "" : ` ${spec.operands}`}`;
      return `${usage}\n\n${spec.summary}\n\nOptions:\n${flags.join("\n")}\n`;
    },
    async run(name, args, shell) {
      let parsed: { values: Record<string, unknown>; positionals: string[] };
      try {
        parsed = parseArgs({
          args: normalized(args, options, stopsAtOperand),
          options,
          allowPositionals: true,
          strict: true,
        });
      } catch (error) {
        // Its sentences end in advice on quoting that has no place here.
        const message = (error as Error).message.split(". ")[0]?.replace(/\n.*/s, "") ?? "";
        throw new UsageError(`${message.charAt(0).toLowerCase()}${message.slice(1)}: see 'muster ${name} --help'`);
      }
      if (parsed.values["help"] === true) {
        shell.print(this.help(name).trimEnd());
        return;
      }
      const { positionals } = parsed;
      if (positionals.length < min)
        throw new UsageError(`'muster ${name}' needs at least ${count(min)}: see 'muster ${name} --help'`);
      if (positionals.length > max)
        throw new UsageError(`'muster ${name}' takes at most ${count(max)}: see 'muster ${name} --help'`);
      const host = parsed.values["host"] as string | undefined;
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
