/**
 * `npm test`: types, lint, format, then every test, group after group; ends with one line that counts them all.
 * With arguments (`npm test -- test/unit/task.test.ts`) it runs only those test files.
 *
 * Groups run one after the other, because cluster and interop tests start real servers and would only make each other slow.
 */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const top = fileURLToPath(new URL("..", import.meta.url));
const bin = (name: string): string => `${top}node_modules/.bin/${name}`;

interface Counts {
  passed: number;
  failed: number;
  skipped: string[];
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** A check is one command that is silent when all is well; its output is shown only when it fails. */
async function check(name: string, command: string, args: readonly string[]): Promise<boolean> {
  const started = Date.now();
  const child = spawn(command, args, { cwd: top, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => (output += chunk.toString()));
  const status = await new Promise<number | null>((resolve) => child.on("close", resolve));
  say(`${status === 0 ? "ok    " : "FAILED"} ${name} (${((Date.now() - started) / 1000).toFixed(1)} s)`);
  if (status !== 0) say(output);
  return status === 0;
}

/** Runs AVA on some files and counts its TAP lines; shows failures in full, passes not at all. */
async function ava(name: string, files: readonly string[], concurrency: number): Promise<Counts> {
  const started = Date.now();
  const counts: Counts = { passed: 0, failed: 0, skipped: [] };
  const child = spawn(bin("ava"), ["--tap", `--concurrency=${concurrency}`, ...files], {
    cwd: top,
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, PATH: `${top}node_modules/.bin:${process.env["PATH"] ?? ""}` },
  });
  let showing = false;
  for await (const line of createInterface({ input: child.stdout })) {
    if (/^(not )?ok \d/.test(line)) {
      const isSkip = /# (SKIP|TO[D]O)/i.test(line);
      showing = line.startsWith("not ok") && !isSkip;
      if (isSkip) counts.skipped.push(line.replace(/^(not )?ok \d+ - /, "").replace(/ # .*/, ""));
      else if (showing) counts.failed += 1;
      else counts.passed += 1;
      if (showing) say(line);
    } else if (/^\d+\.\.\d+|^# (tests|pass|fail|skip)|^TAP version|^$/.test(line)) {
      showing = false;
    } else if (showing || line.startsWith("#") === false) {
      if (showing) say(line);
    }
  }
  const status = await new Promise<number | null>((resolve) =>
    child.exitCode === null ? child.on("close", resolve) : resolve(child.exitCode),
  );
  if (status !== 0 && counts.failed === 0) counts.failed += 1;
  const verdict = counts.failed === 0 ? "ok    " : "FAILED";
  say(
    `${verdict} ${name}: ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped.length} skipped (${((Date.now() - started) / 1000).toFixed(1)} s)`,
  );
  for (const title of counts.skipped) say(`       skipped: ${title}`);
  return counts;
}

const total: Counts = { passed: 0, failed: 0, skipped: [] };
function add(counts: Counts): void {
  total.passed += counts.passed;
  total.failed += counts.failed;
  total.skipped.push(...counts.skipped);
}

const named = process.argv.slice(2);
if (named.length > 0) {
  add(await ava("named tests", named, 1));
} else {
  const checks: [string, string, string[]][] = [
    ["generated code", process.execPath, ["proto/generate.ts", "--check"]],
    ["types", bin("tsc"), ["-p", "."]],
    ["lint", bin("oxlint"), ["--type-aware", "--quiet", "."]],
    ["format", bin("oxfmt"), ["--check", "."]],
  ];
  for (const [name, command, args] of checks) {
    if (await check(name, command, args)) total.passed += 1;
    else total.failed += 1;
  }
  add(await ava("unit and model", ["test/unit/**/*.test.ts", "test/model/**/*.test.ts"], 2));
  add(await ava("simulation", ["test/sim/**/*.test.ts"], 2));
  add(await ava("cluster", ["test/cluster/**/*.test.ts"], 1));
  add(await ava("interop", ["test/interop/**/*.test.ts"], 1));
}
say(`${total.passed} passed, ${total.failed} failed, ${total.skipped.length} skipped`);
process.exit(total.failed === 0 ? 0 : 1);
