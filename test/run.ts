/**
 * `npm test`: types, lint, format, then every test, group after group; ends with one line that counts them all.
 * With arguments (`npm test -- test/unit/task.test.ts`) it runs only those test files.
 *
 * Groups run one after the other, because cluster and interop tests start real servers and would only make each other slow.
 */
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { noCounts, runGroup, say, type Counts } from "./ava.ts";

const top = fileURLToPath(new URL("..", import.meta.url));
const bin = (name: string): string => `${top}node_modules/.bin/${name}`;

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

const total = noCounts();
function add(counts: Counts): void {
  total.passed += counts.passed;
  total.failed += counts.failed;
  total.skipped.push(...counts.skipped);
  total.unsteady.push(...counts.unsteady);
}

const named = process.argv.slice(2);
if (named.length > 0) {
  add(await runGroup(top, "named tests", named, 1));
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
  add(await runGroup(top, "unit and model", ["test/unit/**/*.test.ts", "test/model/**/*.test.ts"], 2));
  add(await runGroup(top, "simulation", ["test/sim/**/*.test.ts"], 2));
  add(await runGroup(top, "cluster", ["test/cluster/**/*.test.ts"], 1));
  add(await runGroup(top, "interop", ["test/interop/**/*.test.ts"], 1));
}
for (const title of total.unsteady) say(`unsteady, to be mended: ${title}`);
say(`${total.passed} passed, ${total.failed} failed, ${total.skipped.length} skipped`);
process.exit(total.failed === 0 ? 0 : 1);
