/**
 * Runs AVA on a group of test files, counts its TAP lines and shows failures in full, passes not at all.
 *
 * A test of real processes can fail because the machine stood still for seconds. So the files of failed tests are run once
 * more, each alone: a test that then passes counts as passed, and is named as unsteady, that somebody mends it. A test whose
 * failure doesn't depend on the machine fails again, since properties draw their cases from one seed (test/support/seed.ts).
 */
import { spawn } from "node:child_process";
import { globSync } from "node:fs";
import { createInterface } from "node:readline";

export interface Counts {
  passed: number;
  failed: number;
  skipped: string[];
  /** Titles of tests that failed first and passed when their file ran again, alone. */
  unsteady: string[];
}

/** How many files at most are run again: when more fail, it is not the machine. */
const againMax = 5;

export const noCounts = (): Counts => ({ passed: 0, failed: 0, skipped: [], unsteady: [] });

interface Run {
  readonly passed: readonly string[];
  readonly failed: readonly string[];
  readonly skipped: string[];
  /** AVA itself failed, though no test did. */
  readonly isBroken: boolean;
}

export function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

async function ava(top: string, files: readonly string[], concurrency: number): Promise<Run> {
  const passed: string[] = [];
  const failed: string[] = [];
  const skipped: string[] = [];
  const child = spawn(`${top}node_modules/.bin/ava`, ["--tap", `--concurrency=${concurrency}`, ...files], {
    cwd: top,
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, PATH: `${top}node_modules/.bin:${process.env["PATH"] ?? ""}` },
  });
  let showing = false;
  for await (const line of createInterface({ input: child.stdout })) {
    const [, not, title] = /^(not )?ok \d+ - (.*)$/.exec(line) ?? [];
    if (title !== undefined) {
      const isSkip = / # (SKIP|TO[D]O)/i.test(title);
      showing = not !== undefined && !isSkip;
      if (isSkip) skipped.push(title.replace(/ # .*/, ""));
      else if (showing) failed.push(title);
      else passed.push(title);
    } else if (/^\d+\.\.\d+|^# (tests|pass|fail|skip)|^TAP version|^$/.test(line)) {
      showing = false;
    }
    if (showing) say(line);
  }
  const status = await new Promise<number | null>((resolve) =>
    child.exitCode === null ? child.on("close", resolve) : resolve(child.exitCode),
  );
  return { passed, failed, skipped, isBroken: status !== 0 && failed.length === 0 };
}

/**
 * Tells a title's file from the test's own name: AVA puts the file's path below the folder that all files share before it,
 * where it runs several. Null if it is of none of the files.
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

/** Failed tests' names by their files, or none where a failure is no single test's or where many files failed. */
function failedByFile(top: string, run: Run, patterns: readonly string[]): ReadonlyMap<string, readonly string[]> {
  const none = new Map<string, string[]>();
  if (run.isBroken) return none;
  const files = patterns.flatMap((pattern) => globSync(pattern, { cwd: top }));
  const byFile = new Map<string, string[]>();
  for (const title of run.failed) {
    const place = placeOfTitle(title, files);
    if (place === null) return none;
    byFile.set(place.file, [...(byFile.get(place.file) ?? []), place.name]);
  }
  return byFile.size <= againMax ? byFile : none;
}

/** Runs a group; says how it went. */
export async function runGroup(
  top: string,
  name: string,
  patterns: readonly string[],
  concurrency: number,
): Promise<Counts> {
  const started = Date.now();
  const run = await ava(top, patterns, concurrency);
  const unsteady: string[] = [];
  for (const [file, names] of failedByFile(top, run, patterns)) {
    say(`${file} failed: once more, alone`);
    const second = await ava(top, [file], 1);
    for (const name of names) if (second.passed.includes(name)) unsteady.push(`${file}: ${name}`);
  }
  const passed = run.passed.length + unsteady.length;
  const failed = run.failed.length + (run.isBroken ? 1 : 0) - unsteady.length;
  say(
    `${failed === 0 ? "ok    " : "FAILED"} ${name}: ${passed} passed, ${failed} failed, ${run.skipped.length} skipped (${((Date.now() - started) / 1000).toFixed(1)} s)`,
  );
  for (const title of run.skipped) say(`       skipped: ${title}`);
  for (const title of unsteady) say(`       unsteady, passed when run again: ${title}`);
  return { passed, failed, skipped: run.skipped, unsteady };
}
