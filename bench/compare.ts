/**
 * The rows of this tree beside those of another commit: each program of benchmarks runs in its own tree, in turns, and each
 * figure gets its ratio. On a busy machine, absolute figures of different minutes cannot be compared.
 */
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { UsageError } from "../test/support/script-arguments.ts";
import { percentile, table } from "./table.ts";

export interface Comparison {
  /** A commit of this repository. */
  readonly commit: string;
  /** Number of turns of each side: 1 or more. */
  readonly rounds: number;
  readonly short: boolean;
}

/** A figure of a printed table, such as `create to RUNNING` of `100 agents, 2000 tasks` and `muster`. */
interface Figure {
  readonly title: string;
  readonly row: string;
  readonly column: string;
  readonly value: number;
  /** Such as `ms`; empty for a count. */
  readonly unit: string;
}

const top = fileURLToPath(new URL("..", import.meta.url));
/** The factor of each unit with others of its kind: a figure of 990 ms in one turn may be 1.02 s in the next. */
const factors: Readonly<Record<string, readonly [base: string, factor: number]>> = {
  ns: ["s", 1e-9],
  µs: ["s", 1e-6],
  ms: ["s", 1e-3],
  kB: ["B", 1e3],
  MB: ["B", 1e6],
  KiB: ["B", 2 ** 10],
  MiB: ["B", 2 ** 20],
};

const figure = /^(?:p50 )?(-?\d[\d,]*(?:\.\d+)?)(?: ?([nµm]?s|[kMG]?B|[KMG]iB|%|points|\w*\/s))?(?: \(.*|[,;].*)?$/;

/** The first number of a cell, with its unit; null for a cell of words, such as `muster` or `100 agents, idle`. */
function valueOf(cell: string): Pick<Figure, "value" | "unit"> | null {
  const [, digits, unit = ""] = figure.exec(cell) ?? [];
  if (digits === undefined) return null;
  const [base, factor] = factors[unit] ?? [unit, 1];
  return { value: Number(digits.replaceAll(",", "")) * factor, unit: base };
}

/**
 * The figures of all tables in a program's output. A row is named by its leading cells that are words, or else by its first.
 */
export function figuresOf(output: string): readonly Figure[] {
  const figures: Figure[] = [];
  let title = "";
  let columns: readonly string[] | null = null;
  for (const line of output.split("\n")) {
    if (line.startsWith("### ")) [title, columns] = [line.slice(4), null];
    if (!line.startsWith("| ")) continue;
    const cells = line
      .slice(1, line.lastIndexOf("|"))
      .split(" | ")
      .map((cell) => cell.trim());
    if (columns === null) {
      columns = cells;
      continue;
    }
    const first = cells.findIndex((cell, at) => at > 0 && valueOf(cell) !== null);
    const named = first === -1 ? cells.length : first;
    const row = cells
      .slice(0, named)
      .filter((cell) => cell !== "")
      .join(", ");
    for (const [at, cell] of cells.entries()) {
      const read = at < named ? null : valueOf(cell);
      if (read !== null) figures.push({ title, row, column: columns[at] ?? "", ...read });
    }
  }
  return figures;
}

/**
 * Tables of the ratio of each figure to its counterpart in the same turn: median, minimum and maximum. A figure that one side
 * lacks, or that is 0 there, is left out.
 */
export function ratioTables(turns: readonly (readonly [here: readonly Figure[], there: readonly Figure[]])[]): string {
  const key = ({ title, row, column, unit }: Figure): string => JSON.stringify([title, row, column, unit]);
  const ratios = new Map<string, { readonly figure: Figure; readonly all: number[] }>();
  for (const [here, there] of turns) {
    const others = new Map(there.map((figure) => [key(figure), figure.value]));
    for (const figure of here) {
      const other = others.get(key(figure));
      if (other === undefined || other === 0) continue;
      const entry = ratios.get(key(figure)) ?? { figure, all: [] };
      entry.all.push(figure.value / other);
      ratios.set(key(figure), entry);
    }
  }
  const titles = new Set(Array.from(ratios.values(), ({ figure }) => figure.title));
  return Array.from(titles, (title) => {
    const rows = Array.from(ratios.values())
      .filter(({ figure }) => figure.title === title)
      .map(({ figure, all }) => [
        figure.row,
        figure.column,
        percentile(all, 0.5).toFixed(2),
        `${Math.min(...all).toFixed(2)}–${Math.max(...all).toFixed(2)}`,
        String(all.length),
      ]);
    return table(title, ["row", "figure", "ratio, median", "spread", "turns"], rows);
  }).join("");
}

function git(...args: string[]): string {
  return execFileSync("git", args, { cwd: top, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }).trim();
}

/** The full hash of a commit, tag or branch. Throws UsageError for an unknown one. */
export function commitNamed(name: string): string {
  try {
    return git("rev-parse", "--verify", "--quiet", "--end-of-options", `${name}^{commit}`);
  } catch {
    throw new UsageError(`--compare: unknown commit "${name}"`);
  }
}

/** A checkout of the commit in a new folder, set up; removed by `remove`. */
async function checkOut(commit: string): Promise<{ readonly tree: string; remove(): void }> {
  const folder = mkdtempSync(join(tmpdir(), "muster-compare-"));
  const tree = join(folder, "tree");
  const remove = (): void => {
    if (existsSync(tree)) git("worktree", "remove", "--force", tree);
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    git("worktree", "add", "--detach", "--quiet", tree, commit);
    const locks = [top, tree].map((each) => readFileSync(join(each, "package-lock.json"), "utf8"));
    // The set-up installs the packages of another lock file.
    if (locks[0] === locks[1]) symlinkSync(join(top, "node_modules"), join(tree, "node_modules"));
    await run(tree, ["tools/setup.mjs"], process.execPath);
    return { tree, remove };
  } catch (error) {
    remove();
    throw error;
  }
}

/** Standard output of a program in a tree. Throws if it fails. */
async function run(tree: string, args: readonly string[], program: string): Promise<string> {
  const child = spawn(program, args, { cwd: tree, stdio: ["ignore", "pipe", "inherit"] });
  const end = (): boolean => child.kill();
  process.once("exit", end);
  const exit = new Promise<number | null>((resolve, reject) => child.once("exit", resolve).once("error", reject));
  const output = await text(child.stdout);
  const status = await exit;
  process.off("exit", end);
  if (status !== 0) throw new Error(`${args.join(" ")} in ${tree} ended with status ${status}`);
  return output;
}

/**
 * Prints the ratios of this tree's figures to those of the commit, for one group after the other; below 1, this tree's figure is
 * smaller. Throws if a program fails, such as for a group that the commit does not have.
 */
export async function compare(groups: readonly string[], { commit, rounds, short }: Comparison): Promise<void> {
  const { tree, remove } = await checkOut(commit);
  // On exit, the running benchmark ends and the checkout is removed.
  const interrupted = (): void => process.exit(130);
  process.once("SIGINT", interrupted).once("SIGTERM", interrupted).once("exit", remove);
  process.stdout.write(
    `This tree in turns with ${commit.slice(0, 12)}: ratio of each figure, ${rounds} turns of each\n`,
  );
  for (const group of groups) {
    const args = ["bench/main.ts", "--only", group, ...(short ? ["--short"] : [])];
    const figures = async (of: string): Promise<readonly Figure[]> =>
      figuresOf(await run(of, args, join(of, "node_modules", ".bin", "node")));
    const turns: (readonly [readonly Figure[], readonly Figure[]])[] = [];
    for (let round = 0; round < rounds; round += 1) {
      // The sides begin in turns, so that a trend of the machine's load favors neither.
      const isFirst = round % 2 === 0;
      const first = await figures(isFirst ? top : tree);
      const second = await figures(isFirst ? tree : top);
      turns.push(isFirst ? [first, second] : [second, first]);
    }
    process.stdout.write(ratioTables(turns));
  }
}
