/** The options of a seed as single values, each with a path such as `network.loss`. */
import { faults, noRates, type FaultRates } from "../../../simulation/faults/kinds.ts";
import type { SimOptions } from "../../../simulation/options.ts";
import { quietOptions } from "../../../simulation/quiet-options.ts";

export type Leaf = number | boolean;

/** Names that have meanings of their own: the cluster's size, and lists. */
const apart = new Set(["seed", "managers", "agents", "faultsMs", "strikes", "onlyTrials"]);

/** Values by path. */
export function leavesOf(options: SimOptions): ReadonlyMap<string, Leaf> {
  const leaves = new Map<string, Leaf>();
  for (const [key, value] of Object.entries(options) as [string, Leaf | Readonly<Record<string, Leaf>>][]) {
    if (apart.has(key)) continue;
    if (typeof value !== "object") leaves.set(key, value);
    else for (const [name, leaf] of Object.entries(value)) leaves.set(`${key}.${name}`, leaf);
  }
  return leaves;
}

/** Values that differ from a world in which nothing happens by itself. Those of faults that are on the list are left out. */
export function busyLeaves(options: SimOptions): ReadonlyMap<string, Leaf> {
  const quiet = leavesOf(quietOptions(options));
  return new Map(
    [...leavesOf(options)].filter(
      ([path, value]) =>
        (quiet.get(path) ?? 0) !== value &&
        !(options.strikes !== null && path.startsWith("rates.")) &&
        !(options.onlyTrials !== null && path === "trials"),
    ),
  );
}

/** A quiet world with these values, and the size and the lists of `options`. */
export function withLeaves(options: SimOptions, leaves: ReadonlyMap<string, Leaf>): SimOptions {
  const { faultsMs, onlyTrials, strikes } = options;
  const changed: Record<string, unknown> = { ...quietOptions(options), faultsMs, onlyTrials, strikes };
  for (const [path, value] of leaves) {
    // Kinds of faults have dots in their names.
    const dot = path.indexOf(".");
    if (dot === -1) changed[path] = value;
    else changed[path.slice(0, dot)] = { ...(changed[path.slice(0, dot)] as object), [path.slice(dot + 1)]: value };
  }
  return withRatesOfStrikes(changed as unknown as SimOptions);
}

/** With a list of strikes, rates only say whether a kind strikes. */
export function withRatesOfStrikes(options: SimOptions): SimOptions {
  const { strikes } = options;
  if (strikes === null) return options;
  const kinds = faults.filter(({ kind }) => strikes.some((strike) => strike.kind === kind));
  const rates = { ...noRates, ...Object.fromEntries(kinds.map(({ kind, meanMs: [least] }) => [kind, least])) };
  return { ...options, rates: rates as FaultRates };
}
