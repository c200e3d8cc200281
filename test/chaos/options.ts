/** The command line of `npm run chaos`. */
import { scriptArguments, UsageError, wholeNumber } from "../support/script-arguments.ts";
import { kinds } from "./kinds.ts";

export interface ChaosOptions {
  readonly faults: number;
  readonly seed: number;
  /** Kinds to draw from; empty: all that this machine supports. */
  readonly only: readonly string[];
}

/** The count that the test in `test/cluster/` draws: each kind at least once. */
const faultsByDefault = 40;
const faultsMax = 100_000;

const usage = "usage: npm run chaos -- [--faults N] [--seed S] [--only KIND[,KIND...]]";

/** Throws UsageError. */
export function chaosOptions(args: readonly string[]): ChaosOptions {
  const values = scriptArguments(
    usage,
    { faults: { type: "string" }, seed: { type: "string" }, only: { type: "string" } },
    args,
  );
  const only = (values.only ?? "").split(",").filter((name) => name !== "");
  const unknown = only.filter((name) => kinds.every((kind) => kind.name !== name));
  if (unknown.length > 0)
    throw new UsageError(
      `--only: unknown kind ${unknown.join(", ")}\n${usage}\n${kinds.map(({ name }) => name).join(", ")}`,
    );
  return {
    faults: wholeNumber("--faults", values.faults ?? String(faultsByDefault), usage, 1, faultsMax),
    seed: wholeNumber("--seed", values.seed ?? "1", usage),
    only,
  };
}
