/**
 * `npm run mutants [-- --only NAME[,NAME]] [--seeds 30] [-j 2] [--enough] [--half tests|seeds] [--out FILE]`
 *
 * Breaks one line after another in a copy of the tree, and runs the related unit tests and this many seeds, each until it finds
 * the mutant. Prints a table and the survivors. Exit status 1 if a mutant survives both, or if seeds find fewer than two thirds
 * of those that concern time, faults or order.
 *
 * Both halves are measured separately, since tests check what a line does and seeds what it is for. `--enough` skips the seeds
 * for plain logic that tests have found; `--half` skips the other half entirely. With `--out`, each result is appended to that
 * file as it comes.
 */
import { appendFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { orExit, scriptArguments, UsageError, wholeNumber } from "../support/script-arguments.ts";
import { mutants, sample } from "./list.ts";
import { broken, type Mutant } from "./mutant.ts";
import { reachedFrom } from "./reach.ts";
import { Tree } from "./tree.ts";
import { isSurvivor, meetsGoal, seedShare, type Finding, type Found } from "./verdict.ts";

const top = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");
const program = "test/sim/main.ts";
/** A mutant may make tests or seeds loop forever, which this limit detects; on a busy machine a good run takes minutes. */
const timeoutMs = 1_200_000;

const usage = `usage: npm run mutants -- [--only NAME[,NAME...] | --sample] [--seeds N] [-j N] [--half tests|seeds] [--enough] [--out FILE]

  --only NAMES    Only these breakages
  --sample        Only the few that CI makes
  --seeds N       Seeds that each is looked for by (default 30)
  -j, --jobs N    Breakages at a time (default 1)
  --half HALF     Only the tests, or only the seeds
  --enough        No seeds for plain logic that tests have found
  --out FILE      Add each result to a file as it comes`;

const { values, seeds, jobs, names } = orExit(() => {
  const values = scriptArguments(usage, {
    only: { type: "string", default: "" },
    sample: { type: "boolean", default: false },
    seeds: { type: "string", default: "30" },
    jobs: { type: "string", short: "j", default: "1" },
    enough: { type: "boolean", default: false },
    half: { type: "string", default: "" },
    out: { type: "string", default: "" },
  });
  if (!["", "tests", "seeds"].includes(values.half))
    throw new UsageError(`--half: expected tests or seeds, got "${values.half}"\n${usage}`);
  if (values.sample && values.only !== "") throw new UsageError(`--sample cannot be combined with --only\n${usage}`);
  const only = values.sample ? sample : values.only === "" ? null : values.only.split(",");
  for (const name of only ?? [])
    if (!mutants.some((mutant) => mutant.name === name))
      throw new UsageError(`no mutant has the name ${name}\n${usage}`);
  return {
    values,
    names: only,
    seeds: wholeNumber("--seeds", values.seeds, usage, 1),
    jobs: wholeNumber("--jobs", values.jobs, usage, 1),
  };
});

function fail(message: string): never {
  process.stderr.write(`${message}\n`);
  process.exit(2);
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
  if (values.out !== "") appendFileSync(values.out, `${line}\n`);
}

const chosen = names === null ? mutants : mutants.filter(({ name }) => names.includes(name));
const simulated = reachedFrom(top, program);

interface Tried {
  readonly finding: Finding;
  /** The test that found it, or nothing. */
  readonly by: string;
}

const skipped: Tried = { finding: "skipped", by: "" };

async function runTests(tree: Tree, files: readonly string[]): Promise<Tried> {
  const paths = files.map((file) => `test/${file}.test.ts`);
  const { isLate, output, status } = await tree.run(
    "ava",
    ["--tap", "--fail-fast", "--concurrency=1", ...paths],
    timeoutMs,
  );
  if (status === 0) return { finding: "missed", by: "" };
  const [, title = ""] = /^not ok \d+ - (.*)$/m.exec(output) ?? [];
  return { finding: "found", by: isLate ? "they did not end" : title };
}

async function runSeeds(tree: Tree): Promise<Tried> {
  const args = [program, "--seeds", String(seeds), "--processes", "1", "--until-failed"];
  const { isLate, output, status } = await tree.run(process.execPath, args, timeoutMs);
  if (status === 0) return { finding: "missed", by: "" };
  const [, seed = "", claim = output.slice(-200)] =
    /^seed (\d+): FAILED (.*?)(?: \(\d+ s virtual.*)?$/m.exec(output) ?? [];
  return { finding: "found", by: isLate ? "they did not end" : `seed ${seed}: ${claim}` };
}

/** A test that fails without any mutant would find every one. */
async function tryUnbroken(tree: Tree): Promise<void> {
  const files = [...new Set(chosen.flatMap(({ tests }) => tests))];
  const tests = values.half === "seeds" ? skipped : await runTests(tree, files);
  if (tests.finding === "found") fail(`a test fails without any mutant: ${tests.by}`);
  if (values.half === "tests" || !chosen.some(({ file }) => simulated.has(file))) return;
  const sim = await runSeeds(tree);
  if (sim.finding === "found") fail(`without any mutant ${sim.by}`);
}

async function tryMutant(tree: Tree, mutant: Mutant): Promise<Found | null> {
  const rot = whyRotten(mutant);
  if (rot !== null) {
    say(`ROTTEN    ${rot}`);
    return null;
  }
  return tree.breaking(mutant, async () => {
    const tests = values.half === "seeds" ? skipped : await runTests(tree, mutant.tests);
    const isEnough = values.enough && mutant.kind === "logic" && tests.finding === "found";
    const sim: Tried = !simulated.has(mutant.file)
      ? { finding: "unreached", by: "" }
      : isEnough || values.half === "tests"
        ? skipped
        : await runSeeds(tree);
    const found = { mutant, tests: tests.finding, seeds: sim.finding };
    const head = `${isSurvivor(found) ? "SURVIVES" : "found   "}  ${mutant.name.padEnd(30)} ${mutant.kind.padEnd(17)}`;
    say(`${head} tests: ${tests.finding.padEnd(7)} seeds: ${sim.finding}`);
    for (const { by } of [tests, sim]) if (by !== "") say(`            ${by.slice(0, 200)}`);
    return found;
  });
}

/** Why it no longer applies; null if it does. */
function whyRotten(mutant: Mutant): string | null {
  try {
    broken(mutant, readFileSync(join(top, mutant.file), "utf8"));
    return null;
  } catch (error) {
    return String(error);
  }
}

const results: Found[] = [];
let rotten = 0;
const left = [...chosen];
const trees = Array.from({ length: Math.min(jobs, chosen.length) }, () => new Tree(top));
try {
  if (trees[0] !== undefined) await tryUnbroken(trees[0]);
  await Promise.all(
    trees.map(async (tree) => {
      for (let mutant = left.shift(); mutant !== undefined; mutant = left.shift()) {
        const result = await tryMutant(tree, mutant);
        if (result === null) rotten += 1;
        else results.push(result);
      }
    }),
  );
} finally {
  for (const tree of trees) tree.remove();
}

const survivors = results.filter(isSurvivor);
const { found, of } = seedShare(results);
say(`${results.length} mutants: ${results.filter(({ tests }) => tests === "found").length} found by tests`);
say(`${found} of ${of} that concern time, faults or order found by ${seeds} seeds`);
for (const { mutant } of survivors) say(`survivor: ${mutant.name} (${mutant.file}): ${mutant.breaks}`);
if (rotten > 0) say(`${rotten} entries no longer apply`);
process.exitCode = meetsGoal(results) && rotten === 0 ? 0 : 1;
