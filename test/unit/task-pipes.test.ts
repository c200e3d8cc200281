// The pipes of tasks' output: many at once by few programs, and one that cannot be created affects no other.
import { execFile } from "node:child_process";
import { lstatSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { PipeMaker } from "../../linux/task-home/pipes.ts";

function folderOf(t: ExecutionContext): string {
  const folder = mkdtempSync(join(tmpdir(), "muster-pipes-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

test("pipes requested at once are created by few programs", async (t) => {
  const folder = folderOf(t);
  const programs: number[] = [];
  const maker = new PipeMaker(async (paths) => {
    programs.push(paths.length);
    await promisify(execFile)("mkfifo", ["-m", "0600", ...paths]);
  });
  const pairs = Array.from({ length: 250 }, (_, at) => [join(folder, `${at}.out`), join(folder, `${at}.err`)]);
  await Promise.all(pairs.map((pair) => maker.make(pair)));
  for (const path of pairs.flat()) {
    const facts = lstatSync(path);
    t.true(facts.isFIFO());
    t.is(facts.mode & 0o777, 0o600);
  }
  t.is(
    programs.reduce((sum, count) => sum + count, 0),
    500,
  );
  t.true(programs.length < 50, `${programs.length} programs`);
});

test("existing pipes stay, and no program is started for them", async (t) => {
  const path = join(folderOf(t), "pipe");
  await new PipeMaker().make([path]);
  const before = lstatSync(path).ino;
  await new PipeMaker(() => Promise.reject(new Error("nothing is missing"))).make([path]);
  t.is(lstatSync(path).ino, before);
});

test("only the pipe that cannot be created is reported, with the obstacle", async (t) => {
  const folder = folderOf(t);
  const taken = join(folder, "taken");
  writeFileSync(taken, "");
  const maker = new PipeMaker();
  const [first, second, third] = await Promise.allSettled([
    maker.make([join(folder, "first")]),
    maker.make([taken]),
    maker.make([join(folder, "third")]),
  ]);
  t.is(first.status, "fulfilled");
  t.is(third.status, "fulfilled");
  if (second.status !== "rejected") return t.fail("a file is not a pipe");
  const { message } = second.reason as Error;
  t.regex(message, /taken/);
  t.notRegex(message, /third/);
  t.true(lstatSync(join(folder, "third")).isFIFO());
});
