/** `npm run sim -- --hours H` with a violated invariant: made up by replacing a check before it is loaded. */
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import test from "ava";
import { openFile } from "../../cli/replay/open.ts";
import { tempDir } from "../fixtures/muster.ts";
import { spansOfJson } from "../support/otlp-schema.ts";
import { readScenario } from "./shrinking/scenario-file.ts";

const main = fileURLToPath(new URL("main.ts", import.meta.url));
const hooks = fileURLToPath(new URL("../fixtures/violated-invariant.ts", import.meta.url));

interface Ended {
  readonly code: number;
  readonly stdout: string;
}

function sim(args: readonly string[], env: Readonly<Record<string, string>>): Promise<Ended> {
  return new Promise((resolve) =>
    execFile(process.execPath, [main, ...args], { env: { ...process.env, ...env } }, (error, stdout) =>
      resolve({ code: Number(error?.code ?? 0), stdout }),
    ),
  );
}

test.serial("a failure of an exploration is written as its shrunk scenario, its spans and its recording", async (t) => {
  t.timeout(600_000);
  const env = { NODE_OPTIONS: `--import=${hooks}`, TMPDIR: tempDir(t, "exploring") };
  const limits = ["--hours", "1", "--plans", "3", "-j", "2", "--from", "5"];
  const { code, stdout } = await sim(limits, env);
  t.is(code, 1, stdout);
  t.regex(stdout, /^FAILED plan \d of the exploration from 5: S1: made up by a test/m);
  t.regex(stdout, /^ {2}S1: 3 runs$/m);
  t.regex(stdout, /^\d+\.\d\d simulated cluster-hours in /m);
  t.regex(stdout, /^[1-9]\d* of \d{3,} transitions of charts reached/m);
  const pathOf = (ending: string): string => new RegExp(`(/\\S+plan-\\d\\.shrunk\\.${ending})`).exec(stdout)?.[1] ?? "";
  const { options, violates } = readScenario(readFileSync(pathOf("yaml"), "utf8"), "shrunk.yaml");
  t.is(violates, "S1");
  t.deepEqual([options.managers, options.agents, options.strikes], [1, 1, []]);
  t.true(spansOfJson(readFileSync(pathOf("otlp\\.json"))).length > 0);
  const recording = await openFile(pathOf("mrec"), false);
  t.regex(recording.lines.find(({ process }) => process === "world")?.text ?? "", /^S1: made up/);
});

test.serial("an exploration is the same with one process and with two", async (t) => {
  t.timeout(600_000);
  const run = async (processes: string): Promise<string> => {
    const { code, stdout } = await sim(["--hours", "1", "--plans", "12", "-j", processes, "--from", "40"], {});
    t.is(code, 0, stdout);
    return stdout.replaceAll(/^\d+ min: .*\n|in \S+ CPU hours/gm, "");
  };
  const [one, two] = [await run("1"), await run("2")];
  t.is(one, two);
  t.regex(one, /^ +\d+ {2}pause$/m);
});
