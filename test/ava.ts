/**
 * Runs AVA on a group of test files, counts its TAP lines and shows only failures in full.
 *
 * Deadlines grow with the slowness of the machine (test/support/slowness.ts), so a second run is never what makes a test
 * pass. The files of failed tests run again, each alone, only to tell what kind of failure it is: a test that then passes is
 * unsteady. A failure that does not depend on the machine repeats, because properties draw their cases from one seed (test/support/seed.ts).
 */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { summaryOfCoverage } from "./support/chart-coverage.ts";
import { startFileTimes } from "./support/file-times.ts";
import { patient } from "./support/slowness.ts";

export interface Counts {
  passed: number;
  failed: number;
  skipped: string[];
  /** Titles of tests that failed first and passed when their file ran again alone; also in `failed`. */
  unsteady: string[];
}

/** A test file without any result for this long is ended (milliseconds). */
const idleMs = 600_000;

/** Number of files that a group lists as its slowest. */
const slowestShown = 5;

/** Maximum number of files to run again; with more failures, the machine is not the cause. */
const againMax = 12;

export const noCounts = (): Counts => ({ passed: 0, failed: 0, skipped: [], unsteady: [] });

/** Files that run `concurrency` at a time. */
export interface Lane {
  readonly files: readonly string[];
  readonly concurrency: number;
}

interface Run {
  readonly files: readonly string[];
  readonly passed: readonly string[];
  readonly failed: readonly string[];
  readonly skipped: string[];
  /** Lines that tests logged. */
  readonly logged: readonly string[];
  /** AVA itself failed, although no test did. */
  readonly isBroken: boolean;
}

export function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

async function ava(
  top: string,
  { files, concurrency }: Lane,
  extraEnv: Readonly<Record<string, string>> = {},
): Promise<Run> {
  const passed: string[] = [];
  const failed: string[] = [];
  const skipped: string[] = [];
  const logged: string[] = [];
  const child = spawn(
    `${top}node_modules/.bin/ava`,
    ["--tap", `--concurrency=${concurrency}`, `--timeout=${patient(idleMs)}`, ...files],
    {
      cwd: top,
      stdio: ["ignore", "pipe", "inherit"],
      env: {
        ...process.env,
        PATH: `${top}node_modules/.bin:${process.env["PATH"] ?? ""}`,
        // Half of the CPU time of a usual unit test's process is compiling what it imports.
        NODE_COMPILE_CACHE: `${top}node_modules/.cache/compiled`,
        ...extraEnv,
      },
    },
  );
  let showing = false;
  // Printed in one write: another lane may fail at the same time.
  let shown: string[] = [];
  const show = (): void => {
    if (shown.length > 0) say(shown.join("\n"));
    shown = [];
  };
  for await (const line of createInterface({ input: child.stdout })) {
    const [, not, title] = /^(not )?ok \d+ - (.*)$/.exec(line) ?? [];
    if (title !== undefined) {
      const isSkip = / # (SKIP|TO[D]O)/i.test(title);
      show();
      showing = not !== undefined && !isSkip;
      if (isSkip) skipped.push(title.replace(/ # .*/, ""));
      else if (showing) failed.push(title);
      else passed.push(title);
    } else if (/^\d+\.\.\d+|^# (tests|pass|fail|skip)|^TAP version/.test(line)) {
      showing = false;
    }
    if (/^# {3}\S/.test(line)) logged.push(line);
    if (showing) shown.push(line);
  }
  show();
  const status = await new Promise<number | null>((resolve) =>
    child.exitCode === null ? child.on("close", resolve) : resolve(child.exitCode),
  );
  return { files, passed, failed, skipped, logged, isBroken: status !== 0 && failed.length === 0 };
}

/**
 * Splits a title into its file and the test's own name. When AVA runs several files, it prefixes the title with the file's path
 * below their common folder. Null if the title belongs to none of the files.
 */
export function placeOfTitle(
  title: string,
  files: readonly string[],
): { readonly file: string; readonly name: string } | null {
  let found: { readonly file: string; readonly name: string } | null = null;
  for (const file of files) {
    const parts = file.replace(/\.test\.ts$/, "").split("/");
    for (let from = parts.length - 1; from >= 0; from -= 1) {
      const prefix = `${parts.slice(from).join(" › ")} › `;
      const name = title.slice(prefix.length);
      if (title.startsWith(prefix) && name.length < (found?.name.length ?? Infinity)) found = { file, name };
    }
  }
  return found;
}

/** Names of failed tests by file; empty if a failure belongs to no single test or if many files failed. */
function failedByFile(runs: readonly Run[]): ReadonlyMap<string, readonly string[]> {
  const none = new Map<string, string[]>();
  const byFile = new Map<string, string[]>();
  for (const run of runs) {
    if (run.isBroken) return none;
    for (const title of run.failed) {
      const place = placeOfTitle(title, run.files);
      if (place === null) return none;
      byFile.set(place.file, [...(byFile.get(place.file) ?? []), place.name]);
    }
  }
  return byFile.size <= againMax ? byFile : none;
}

/** Runs a group, its lanes side by side, and returns the outcome. */
export async function runGroup(top: string, name: string, ...lanes: readonly Lane[]): Promise<Counts> {
  const started = Date.now();
  const times = startFileTimes(top);
  const runs = await Promise.all(
    lanes.filter(({ files }) => files.length > 0).map((lane) => ava(top, lane, times.env)),
  );
  const slowest = times.slowest(slowestShown).map(({ file, seconds }) => `${file} ${seconds.toFixed(0)} s`);
  const unsteady: string[] = [];
  for (const [file, names] of failedByFile(runs)) {
    say(`${file} failed: once more, alone`);
    const { passed } = await ava(top, { files: [file], concurrency: 1 });
    unsteady.push(...names.filter((name) => passed.includes(name)).map((name) => `${file}: ${name}`));
  }
  const sum = (count: (run: Run) => number): number => runs.reduce((total, run) => total + count(run), 0);
  const passed = sum((run) => run.passed.length);
  const failed = sum((run) => run.failed.length + (run.isBroken ? 1 : 0));
  const skipped = runs.flatMap((run) => run.skipped);
  const seconds = ((Date.now() - started) / 1000).toFixed(1);
  say(
    `${failed === 0 ? "ok    " : "FAILED"} ${name}: ${passed} passed, ${failed} failed, ${skipped.length} skipped (${seconds} s)`,
  );
  say(`       slowest: ${slowest.join(", ")}`);
  const coverage = summaryOfCoverage(runs.flatMap(({ logged }) => logged));
  if (coverage !== null) say(`       ${coverage}`);
  for (const title of skipped) say(`       skipped: ${title}`);
  for (const title of unsteady) say(`       unsteady, passed when run again alone: ${title}`);
  return { passed, failed, skipped, unsteady };
}
