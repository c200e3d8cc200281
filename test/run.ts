/**
 * `npm test`: types, lint, format, then every test, group after group; the last line counts them all.
 * With arguments (`npm test -- test/unit/task.test.ts`) it runs only those test files.
 *
 * Groups run one after the other. Cluster and interop tests start real servers and wait for them more than half of their time,
 * so three of their files run at a time; but only one at a time with engines in this machine's own network.
 */
import { spawn } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { noCounts, runGroup, say, type Counts } from "./ava.ts";

const top = fileURLToPath(new URL("..", import.meta.url));
const bin = (name: string): string => `${top}node_modules/.bin/${name}`;

const filesOf = (...patterns: readonly string[]): readonly string[] => globSync(patterns, { cwd: top }).toSorted();

/** Such engines of different files would conflict: each has its bridges and links there. */
function hasEngineOfThisNetwork(file: string): boolean {
  return /\bstartEngine\(\w+\)/.test(readFileSync(`${top}${file}`, "utf8"));
}

/** A check is one command without output on success; its output is shown only when it fails. */
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

const total = noCounts();
function add(counts: Counts): void {
  total.passed += counts.passed;
  total.failed += counts.failed;
  total.skipped.push(...counts.skipped);
  total.unsteady.push(...counts.unsteady);
}

const named = process.argv.slice(2);
if (named.length > 0) {
  add(await runGroup(top, "named tests", { files: named, concurrency: 1 }));
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
  const quick = filesOf("test/unit/**/*.test.ts", "test/model/**/*.test.ts");
  add(await runGroup(top, "unit and model", { files: quick, concurrency: 2 }));
  add(await runGroup(top, "simulation", { files: filesOf("test/sim/**/*.test.ts"), concurrency: 2 }));
  const real = filesOf("test/cluster/**/*.test.ts", "test/interop/**/*.test.ts");
  const { engines = [], others = [] } = Object.groupBy(real, (file) =>
    hasEngineOfThisNetwork(file) ? "engines" : "others",
  );
  add(
    await runGroup(top, "cluster and interop", { files: engines, concurrency: 1 }, { files: others, concurrency: 2 }),
  );
}
for (const title of total.unsteady) say(`unsteady, must be fixed: ${title}`);
say(`${total.passed} passed, ${total.failed} failed, ${total.skipped.length} skipped`);
process.exit(total.failed === 0 ? 0 : 1);
