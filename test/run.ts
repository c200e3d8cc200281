/**
 * `npm test`: types, lint, format, then every test, group after group; the last line counts them all.
 * With arguments it runs only these groups or test files: `npm test -- unit`, `npm test -- test/unit/task.test.ts`.
 *
 * Groups run one after the other. Cluster and interop tests start real servers and wait for them more than half of their time,
 * so four of their files run at a time; but only one at a time with engines in this machine's own network.
 */
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { noCounts, runGroup, say, type Counts, type Lane } from "./ava.ts";
import { filesOf, select, usage, type Group, type Selection } from "./selection.ts";
import { measureSlowness, slownessVariable } from "./support/slowness.ts";

const top = fileURLToPath(new URL("..", import.meta.url));
const bin = (name: string): string => `${top}node_modules/.bin/${name}`;

/** Such engines of different files would conflict: each has its bridges and links there. A file may import the tests of others. */
function hasEngineOfThisNetwork(file: string): boolean {
  const text = readFileSync(join(top, file), "utf8");
  const imported = [...text.matchAll(/\bimport\("(\.[^"]+\.test\.ts)"\)/g)].map(([, path]) => path as string);
  return (
    /\bstartEngine\(\w+\)/.test(text) || imported.some((path) => hasEngineOfThisNetwork(join(dirname(file), path)))
  );
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

async function runChecks(): Promise<void> {
  const checks: [string, string, string[]][] = [
    ["generated code", process.execPath, ["proto/generate.ts", "--check"]],
    ["types", bin("tsc"), ["-p", "."]],
    ["types of the page", bin("tsc"), ["-p", "ui"]],
    ["lint", bin("oxlint"), ["--type-aware", "--quiet", "."]],
    ["format", bin("oxfmt"), ["--check", "."]],
  ];
  for (const [name, command, args] of checks) {
    if (await check(name, command, args)) total.passed += 1;
    else total.failed += 1;
  }
}

/** Lanes for tests of real processes. */
function realLanes(files: readonly string[]): readonly Lane[] {
  const { engines = [], others = [] } = Object.groupBy(files, (file) =>
    hasEngineOfThisNetwork(file) ? "engines" : "others",
  );
  return [
    { files: engines, concurrency: 1 },
    { files: others, concurrency: 3 },
  ];
}

function selection(): Selection {
  const args = process.argv.slice(2);
  if (args.includes("--help") || args.includes("-h")) {
    process.stdout.write(usage);
    process.exit(0);
  }
  try {
    return select(args, filesOf(top, "unit", "sim", "cluster", "interop"));
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n\n${usage}`);
    process.exit(2);
  }
}

const selected = selection();
const isSelected = (group: Group): boolean => selected.groups.includes(group);
if (selected.isWatching) {
  const files = [...filesOf(top, ...selected.groups), ...selected.files];
  const child = spawn(bin("ava"), ["--watch", ...files], { cwd: top, stdio: "inherit" });
  process.exit(await new Promise<number>((resolve) => child.on("close", (code) => resolve(code ?? 0))));
}
const slowness = measureSlowness();
process.env[slownessVariable] = String(slowness);
if (slowness > 1) say(`this machine is ${slowness} times slower than the tests expect: their deadlines are longer`);
if (selected.runsChecks) await runChecks();
if (selected.files.length > 0) add(await runGroup(top, "named tests", { files: selected.files, concurrency: 1 }));
if (isSelected("unit")) add(await runGroup(top, "unit and model", { files: filesOf(top, "unit"), concurrency: 2 }));
if (isSelected("sim")) add(await runGroup(top, "simulation", { files: filesOf(top, "sim"), concurrency: 2 }));
// Together: one group's engines run beside the other's processes.
const real = (["cluster", "interop"] as const).filter((group) => isSelected(group));
if (real.length > 0) add(await runGroup(top, real.join(" and "), ...realLanes(filesOf(top, ...real))));
for (const title of total.unsteady) say(`UNSTEADY, must be fixed: ${title}`);
say(`${total.passed} passed, ${total.failed} failed, ${total.skipped.length} skipped`);
process.exit(total.failed === 0 ? 0 : 1);
