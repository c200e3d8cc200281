// The programs that `npm run` starts print their usage, and name arguments that they cannot parse.
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import test from "ava";
import { scriptArguments, UsageError, wholeNumber } from "../support/script-arguments.ts";

const top = fileURLToPath(new URL("../..", import.meta.url));

for (const program of ["test/sim/main.ts", "test/chaos/main.ts", "test/mutants/main.ts", "bench/main.ts"]) {
  test(`${program} prints its usage for --help`, (t) => {
    const help = spawnSync(process.execPath, [program, "--help"], { cwd: top, encoding: "utf8" });
    t.is(help.status, 0, help.stderr);
    t.regex(help.stdout, /^usage: npm run \w+ -- \[--/);
    t.is(help.stderr, "");
  });
}

test("an error is one sentence above the usage, without a stack", (t) => {
  const { status, stderr } = spawnSync(process.execPath, ["test/chaos/main.ts", "--nothing"], {
    cwd: top,
    encoding: "utf8",
  });
  t.is(status, 2);
  t.regex(stderr, /^Unknown option '--nothing'.*\nusage: npm run chaos /);
  t.notRegex(stderr, /^\s+at /m);
});

test("arguments are parsed, or rejected with the usage", (t) => {
  const read = (...args: readonly string[]) =>
    scriptArguments("usage: x", { seeds: { type: "string", default: "20" }, short: { type: "boolean" } }, args);
  t.like(read("--short"), { seeds: "20", short: true });
  for (const wrong of [["--other"], ["operand"], ["--seeds", "-1"]])
    t.throws(() => read(...wrong), { instanceOf: UsageError, message: /\nusage: x$/ });
  t.like(
    t.throws(() => read("--help")),
    { message: "usage: x", status: 0 },
  );
});

test("numbers are integers in their range", (t) => {
  t.is(wholeNumber("--seeds", "7", "usage: x"), 7);
  for (const wrong of ["many", "-1", "1.5", "", "1e3"])
    t.throws(() => wholeNumber("--seeds", wrong, "usage: x"), {
      message: `--seeds: expected a whole number from 0, got "${wrong}"\nusage: x`,
    });
  t.throws(() => wholeNumber("-j", "9", "usage: x", 1, 8), { message: /from 1 to 8, got "9"/ });
});
