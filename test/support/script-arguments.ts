/** Arguments of the programs that `npm run` starts: `--help` prints their usage, and an error prints one sentence above it. */
import { parseArgs, type ParseArgsOptionsConfig } from "node:util";

/** An invalid command line, or a request for help. The message ends with the usage. */
export class UsageError extends Error {
  override readonly name = "UsageError";
  /** The exit status: 0 for help, 2 for an error. */
  readonly status: 0 | 2;

  constructor(message: string, status: 0 | 2 = 2) {
    super(message);
    this.status = status;
  }
}

/** Values of `options` and `--help`. Throws UsageError. */
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

/** An integer from `min` to `max`. Throws UsageError. */
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

/** Returns the result of `read`. Exits if it throws UsageError: help goes to standard output, an error to standard error. */
export function orExit<Result>(read: () => Result): Result {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    (error.status === 0 ? process.stdout : process.stderr).write(`${error.message}\n`);
    process.exit(error.status);
  }
}
