/** What `npm run chaos` takes on its command line. */
import { parseArgs } from "node:util";
import { kinds } from "./kinds.ts";

/** A command line that cannot be understood. */
export class UsageError extends Error {}

export interface ChaosOptions {
  readonly faults: number;
  readonly seed: number;
  /** Kinds to draw from; empty: all that this machine can have. */
  readonly only: readonly string[];
}

/** As many as the test in `test/cluster/` draws: each kind at least once. */
const faultsByDefault = 40;
const faultsMax = 100_000;

export const usage = "usage: npm run chaos -- [--faults N] [--seed S] [--only KIND[,KIND...]]";

/** Throws UsageError. */
export function chaosOptions(args: readonly string[]): ChaosOptions {
  const { values } = parsed(args);
  const only = (values.only ?? "").split(",").filter((name) => name !== "");
  const unknown = only.filter((name) => kinds.every((kind) => kind.name !== name));
  if (unknown.length > 0)
    throw new UsageError(
      `--only: no kind is called ${unknown.join(", ")}\n${usage}\n${kinds.map(({ name }) => name).join(", ")}`,
    );
  return {
    faults: wholeNumber("--faults", values.faults ?? String(faultsByDefault), 1, faultsMax),
    seed: wholeNumber("--seed", values.seed ?? "1", 0, Number.MAX_SAFE_INTEGER),
    only,
  };
}

function parsed(args: readonly string[]): {
  readonly values: { readonly faults?: string; readonly seed?: string; readonly only?: string };
} {
  try {
    return parseArgs({
      args: [...args],
      options: { faults: { type: "string" }, seed: { type: "string" }, only: { type: "string" } },
    });
  } catch (error) {
    throw new UsageError(`${(error as Error).message}\n${usage}`);
  }
}

function wholeNumber(name: string, text: string, min: number, max: number): number {
  const number = Number(text);
  if (!/^\d+$/.test(text) || number < min || number > max)
    throw new UsageError(`${name}: expected a whole number from ${min} to ${max}, got "${text}"\n${usage}`);
  return number;
}
