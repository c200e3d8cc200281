/** Chooses the checks and tests that `npm test` runs. */
import { globSync } from "node:fs";
import { normalize } from "node:path";

/** Groups in the order in which they run. Each group's tests are those of its folders. */
const groups = {
  unit: ["test/unit", "test/model"],
  sim: ["test/sim"],
  cluster: ["test/cluster"],
  interop: ["test/interop"],
} as const satisfies Readonly<Record<string, readonly string[]>>;

export type Group = keyof typeof groups;

export const usage = `usage: npm test [-- [--watch] [GROUP|FILE]...]

  unit      Unit and model tests
  sim       Tests by simulation
  cluster   Tests of Muster's own processes
  interop   Tests with other programs: Docker, Nomad, Juju, SwarmKit, Felix
  checks    Generated code, types, lint and format
  FILE      A test file, such as test/unit/task.test.ts

  --watch   Run again what a change affects, until interrupted (default: unit)

Without GROUP and FILE it runs everything.
`;

export interface Selection {
  readonly runsChecks: boolean;
  readonly groups: readonly Group[];
  /** Test files that were named. */
  readonly files: readonly string[];
  readonly isWatching: boolean;
}

const isGroup = (word: string): word is Group => Object.hasOwn(groups, word);

/** Throws an Error with a sentence for an argument that is neither a group nor one of `testFiles`. */
export function select(args: readonly string[], testFiles: readonly string[]): Selection {
  const isWatching = args.includes("--watch");
  const words = args.filter((word) => word !== "--watch").map((word) => normalize(word));
  const files = words.filter((word) => !isGroup(word) && word !== "checks");
  for (const file of files)
    if (!testFiles.includes(file)) {
      const expected = [...Object.keys(groups), "checks"].join(", ");
      throw new Error(`unknown test group or file "${file}": expected ${expected}, or a file that ends with .test.ts`);
    }
  if (isWatching && words.includes("checks")) throw new Error("--watch runs tests only: remove checks");
  const named = (Object.keys(groups) as Group[]).filter((group) => words.includes(group));
  if (words.length > 0) return { runsChecks: words.includes("checks"), groups: named, files, isWatching };
  if (isWatching) return { runsChecks: false, groups: ["unit"], files: [], isWatching };
  return { runsChecks: true, groups: Object.keys(groups) as Group[], files: [], isWatching };
}

/** Test files of these groups, below `top`, sorted. */
export function filesOf(top: string, ...wanted: readonly Group[]): readonly string[] {
  const patterns = wanted.flatMap((group) => groups[group].map((folder) => `${folder}/**/*.test.ts`));
  return globSync(patterns, { cwd: top }).toSorted();
}
