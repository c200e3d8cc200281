// .ci/commit-subjects, in small repositories of its own.
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";

const script = fileURLToPath(new URL("../../.ci/commit-subjects", import.meta.url));
// Independent of the user's settings, such as hooks and signatures.
const env = {
  ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("GIT_"))),
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_AUTHOR_NAME: "a",
  GIT_AUTHOR_EMAIL: "a@localhost",
  GIT_COMMITTER_NAME: "a",
  GIT_COMMITTER_EMAIL: "a@localhost",
  // Repositories above the temporary directory do not count.
  GIT_CEILING_DIRECTORIES: tmpdir(),
};

function folder(t: ExecutionContext): string {
  const path = mkdtempSync(join(tmpdir(), "muster-subjects-"));
  t.teardown(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** A repository with one commit per subject; returns the id of the first. */
function repository(path: string, subjects: readonly string[]): string {
  const git = (...args: readonly string[]): string =>
    execFileSync("git", args, { cwd: path, env, encoding: "utf8" }).trim();
  git("init", "--quiet");
  for (const subject of subjects) git("commit", "--quiet", "--allow-empty", "--message", subject);
  return git("rev-list", "--max-parents=0", "HEAD");
}

function check(path: string, ...args: readonly string[]): { readonly status: number | null; readonly output: string } {
  const { status, stdout, stderr } = spawnSync(script, args, { cwd: path, env, encoding: "utf8" });
  return { status, output: stdout + stderr };
}

test("well-formed subjects pass", (t) => {
  const path = folder(t);
  const subjects = [
    "cli: add contexts, suggestions, and errors in Docker's words",
    "docs/adr: number the decisions",
    "node 24: use the built-in WebSocket",
    "juju: NATS errors become try again",
    "sim: address the review",
    `log: ${"é".repeat(67)}`,
  ];
  const first = repository(path, ["Any subject before", ...subjects]);
  t.deepEqual(check(path, first), {
    status: 0,
    output: `${subjects.length} commit subjects since ${first} are well formed\n`,
  });
});

for (const [subject, reason] of [
  ["Add contexts", 'expected "area: summary"'],
  ["Cli: add contexts", 'expected "area: summary"'],
  ["cli:add contexts", 'expected "area: summary"'],
  ["cli: ", 'expected "area: summary"'],
  [`cli: ${"x".repeat(68)}`, "it has 73 characters"],
  ["cli: add contexts.", "omit the full stop"],
  ["cli: added contexts", 'not with "added"'],
  ["cli: adds contexts", 'not with "adds"'],
  ["cli: removing contexts", 'not with "removing"'],
  ["sim: what nobody calls is gone", 'not with "what"'],
  ["manager: A manager founds no second cluster", 'not with "a"'],
] as const) {
  test(`the subject ${JSON.stringify(subject)} is rejected`, (t) => {
    const path = folder(t);
    const first = repository(path, ["Any subject before", "cli: add a test", subject]);
    const { status, output } = check(path, first);
    t.is(status, 1, output);
    t.true(output.includes(reason), output);
    t.true(output.endsWith(`1 of 2 commit subjects since ${first} are malformed\n`), output);
  });
}

test("a checkout without the history passes, and the output says that nothing is checked", (t) => {
  const squashed = folder(t);
  repository(squashed, ["Everything in one commit."]);
  const notice = "commit subjects are not checked: this checkout has no history since 693fcb9\n";
  t.deepEqual(check(squashed), { status: 0, output: notice });
  t.deepEqual(check(folder(t)), { status: 0, output: notice }, "not a repository");
});
