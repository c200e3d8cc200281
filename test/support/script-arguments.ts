/** Arguments of the programs that `npm run` starts: `--help` prints their usage, and a mistake is one sentence above it. */
import { parseArgs, type ParseArgsOptionsConfig } from "node:util";

/** A command line that cannot be understood, or one that asks for help. The message ends with the usage. */
export class UsageError extends Error {
  override readonly name = "UsageError";
  /** The exit status: 0 for help, 2 for a mistake. */
  readonly status: 0 | 2;

  constructor(message: string, status: 0 | 2 = 2) {
    super(message);
    this.status = status;
  }
}

/** Values of `options`, and of `--help`. Throws UsageError. */
export function scriptArguments<const Options extends ParseArgsOptionsConfig>(
  usage: string,
  options: Options,
  args: readonly string[] = process.argv.slice(2),
): ReturnType<typeof parseArgs<{ options: Options; strict: true; allowPositionals: false }>>["values"] {
  try {
    const asksForHelp = args.some((arg) => arg === "--help" || arg === "-h");
    if (!asksForHelp) return parseArgs({ args: [...args], options, strict: true, allowPositionals: false }).values;
  } catch (error) {
    throw new UsageError(`${(error as Error).message}\n${usage}`);
  }
  throw new UsageError(usage, 0);
}

/** A whole number from `min` to `max`. Throws UsageError. */
export function wholeNumber(
  name: string,
  text: string,
  usage: string,
  min = 0,
  max: number = Number.MAX_SAFE_INTEGER,
): number {
  const number = Number(text);
  if (/^\d+$/.test(text) && number >= min && number <= max) return number;
  const range = max === Number.MAX_SAFE_INTEGER ? `from ${min}` : `from ${min} to ${max}`;
  throw new UsageError(`${name}: expected a whole number ${range}, got "${text}"\n${usage}`);
}

/** What `read` returns. Ends the process where it throws UsageError: help goes to standard output, a mistake to standard error. */
export function orExit<Result>(read: () => Result): Result {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    (error.status === 0 ? process.stdout : process.stderr).write(`${error.message}\n`);
    process.exit(error.status);
  }
}
