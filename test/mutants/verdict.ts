/** The required results of tests and simulation together. */
import type { Mutant } from "./mutant.ts";

/** `unreached`: no simulation runs the file. `skipped`: the other half was enough. */
export type Finding = "found" | "missed" | "unreached" | "skipped";

export interface Found {
  readonly mutant: Mutant;
  readonly tests: Finding;
  readonly seeds: Finding;
}

/** The share of mutants concerning time, faults or order that seeds must find. */
const seedShareMin = 2 / 3;

export function isSurvivor({ tests, seeds }: Found): boolean {
  return tests !== "found" && seeds !== "found";
}

export function seedShare(results: readonly Found[]): { readonly found: number; readonly of: number } {
  const timed = results.filter(({ mutant }) => mutant.kind === "time-fault-order");
  return { found: timed.filter(({ seeds }) => seeds === "found").length, of: timed.length };
}

export function meetsGoal(results: readonly Found[]): boolean {
  const { found, of } = seedShare(results);
  return !results.some(isSurvivor) && found >= seedShareMin * of;
}
