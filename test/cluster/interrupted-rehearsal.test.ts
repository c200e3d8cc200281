// Ctrl-C during `muster simulate` in a terminal: the report has what was run, and no process is left.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { tempDir } from "../fixtures/muster.ts";
import { kill, processesWith } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const main = fileURLToPath(new URL("../../cli/main.ts", import.meta.url));
const hours = 8;

test.serial("Ctrl-C ends a rehearsal with the report of what was run", async (t) => {
  t.timeout(patient(180_000));
  const mark = `MUSTER_TEST_REHEARSAL=${process.pid}`;
  const [name = "", value] = mark.split("=");
  const file = join(tempDir(t, "interrupted"), "report.json");
  // Far longer than the test waits. The second seed is never begun.
  const flags = `--scenario flapping-node --seeds 2 -j 1 --hours ${hours} --json ${file}`;
  const terminal = spawn("script", ["-qec", `exec ${process.execPath} ${main} simulate ${flags}`, "/dev/null"], {
    stdio: "pipe",
    env: { ...process.env, [name]: value },
  });
  t.teardown(() => {
    for (const each of processesWith(mark)) kill(each);
  });
  let shown = "";
  terminal.stdout.on("data", (chunk: Buffer) => (shown += chunk.toString()));
  const ended = once(terminal, "close");
  await until("a part of the first seed", () => /0 of 2 seeds, [1-9]/.test(shown), 120_000);
  terminal.stdin.write("\x03");
  const [code] = (await ended) as [number | null];
  t.is(code, 0, shown.slice(-300));
  t.regex(shown, /1 of 2 seeds; all invariants held/);
  const { report, runs } = JSON.parse(readFileSync(file, "utf8")) as {
    readonly report: { readonly seeds: number; readonly seedsWanted: number };
    readonly runs: readonly { readonly seed: number; readonly ranMs: number; readonly violation: string | null }[];
  };
  t.like(report, { seeds: 1, seedsWanted: 2 });
  const [run] = runs;
  t.like(run, { seed: 1, violation: null });
  const ranHours = (run?.ranMs ?? 0) / 3_600_000;
  t.true(ranHours >= (2 * hours) / 100 && ranHours < hours, `${ranHours} hours were run`);
  await until("no process to be left", () => processesWith(mark).length === 0);
});
