// Reading tasks' output from the files that the kernel writes.
import { appendFile, constants, copyFile, rename, stat, truncate } from "node:fs/promises";
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import fc from "fast-check";
import type { OutputLine, OutputReader, OutputRequest } from "../../actors/agent/ports.ts";
import { OutputMarks } from "../../linux/output/output-marks.ts";
import { OutputFiles } from "../../linux/output/output-reader.ts";
import { SystemClock } from "../../runtime/system/clock.ts";
import { until } from "../fixtures/until.ts";

const outputNames = ["stdout", "stderr"] as const;

const clock = new SystemClock();
const everything: OutputRequest = {
  stdout: true,
  stderr: true,
  tail: null,
  sinceMs: 0,
  follow: false,
  from: null,
  isOver: () => false,
};

/** Writes files as the process that keeps output does, with marks at times of the test's choosing. O2 */
async function beginMarks(directory: string, nowMs: number): Promise<void> {
  for (const name of outputNames) await appendFile(join(directory, `${name}.marks`), `${nowMs} 0\n`, { mode: 0o600 });
}

/** O1, O2 */
async function rotate(
  directory: string,
  {
    bytesMax,
    marked,
    nowMs,
  }: {
    readonly bytesMax: number;
    readonly marked: Record<(typeof outputNames)[number], number>;
    readonly nowMs: number;
  },
): Promise<void> {
  for (const name of outputNames) {
    const path = join(directory, name);
    const { mtimeMs, size } = await stat(path);
    if (size !== marked[name])
      await appendFile(`${path}.marks`, `${Math.min(mtimeMs, nowMs)} ${size}\n`, { mode: 0o600 });
    marked[name] = size;
    if (size <= bytesMax) continue;
    await copyFile(path, `${path}.1`, constants.COPYFILE_FICLONE);
    await truncate(path);
    // Last: a reader that finds new marks finds the rest of its file behind the old ones.
    await rename(`${path}.marks`, `${path}.1.marks`);
    await appendFile(`${path}.marks`, `${nowMs} 0\n`, { mode: 0o600 });
    marked[name] = 0;
  }
}

function task(t: ExecutionContext) {
  const home = mkdtempSync(join(tmpdir(), "muster-output-"));
  t.teardown(() => rmSync(home, { recursive: true, force: true }));
  const marked = { stdout: 0, stderr: 0 };
  return {
    home,
    begin: async (nowMs: number): Promise<void> => {
      await beginMarks(home, nowMs);
      for (const name of ["stdout", "stderr"]) writeFileSync(join(home, name), "");
    },
    write: (text: string, name: "stdout" | "stderr" = "stdout") => appendFileSync(join(home, name), text),
    rotate: (bytesMax: number) => rotate(home, { bytesMax, marked, nowMs: Date.now() }),
    read: (request: Partial<OutputRequest> = {}): OutputReader =>
      new OutputFiles(home, { ...everything, ...request }, clock),
  };
}

const textOf = (lines: readonly OutputLine[]): string => lines.map(({ data }) => Buffer.from(data).toString()).join("");

async function all(reader: OutputReader): Promise<string> {
  let text = "";
  for (;;) {
    const lines = await reader.next();
    if (lines === null) return text;
    text += textOf(lines);
  }
}

/** Keeps reading in the background. */
function reading(t: ExecutionContext, reader: OutputReader) {
  const got = { text: "", isOver: false };
  t.teardown(() => reader.close());
  void (async () => {
    for (;;) {
      const lines = await reader.next();
      if (lines === null) break;
      got.text += textOf(lines);
    }
    got.isOver = true;
  })();
  return got;
}

const numbered = (from: number, to: number): string =>
  Array.from({ length: to - from + 1 }, (_, at) => `line ${from + at}\n`).join("");

test("everything is read, rotated files first", async (t) => {
  const { begin, read, rotate: turn, write } = task(t);
  await begin(1_000);
  write(numbered(1, 50));
  await turn(10);
  write(numbered(51, 90));
  t.is(await all(read()), numbered(1, 90));
});

test("the tail covers both outputs together, and reaches into rotated files", async (t) => {
  const { begin, read, rotate: turn, write } = task(t);
  await begin(Date.now() - 1_000);
  write(numbered(1, 20_000));
  await turn(10);
  write("line 20001\nwithout an end");
  await until("a later moment", () => new Promise((resolve) => setTimeout(() => resolve(true), 20)));
  write("last\n", "stderr");
  t.is(await all(read({ tail: 1 })), "last\n");
  t.is(await all(read({ tail: 0 })), "");
  t.is(await all(read({ tail: 4, stderr: false })), "line 19999\nline 20000\nline 20001\nwithout an end");
  t.is((await all(read({ tail: 15_000, stderr: false }))).split("\n").length, 15_000);
  t.is((await all(read({ tail: 1e6 }))).length, numbered(1, 20_001).length + "without an endlast\n".length);
});

test("a follower gets each line once and whole, through a rotation, and the rest when the task ends", async (t) => {
  const { begin, read, rotate: turn, write } = task(t);
  await begin(1_000);
  write(numbered(1, 10));
  let isOver = false;
  const got = reading(t, read({ follow: true, tail: 2, isOver: () => isOver }));
  await until("the tail", () => got.text === numbered(9, 10));
  write("line 1");
  write("1\nline 12");
  await until("the completed line", () => got.text === numbered(9, 11));
  write("\n");
  await turn(10);
  write(numbered(13, 20));
  await until("the output after the rotation", () => got.text === numbered(9, 20));
  write("no end");
  isOver = true;
  await until("the end", () => got.isOver);
  t.is(got.text, `${numbered(9, 20)}no end`);
});

test("a follower waits for a task that has not started, and gets the written output of a removed one", async (t) => {
  const { begin, home, read, write } = task(t);
  let isOver = false;
  const got = reading(t, read({ follow: true, isOver: () => isOver }));
  await begin(1_000);
  write("first\n");
  await until("the first line", () => got.text === "first\n");
  write("last\n");
  rmSync(home, { recursive: true });
  isOver = true;
  await until("the end", () => got.isOver);
  t.is(got.text, "first\nlast\n");
});

test("a reader continues where another stopped", async (t) => {
  const { begin, read, rotate: turn, write } = task(t);
  await begin(1_000);
  write(numbered(1, 5));
  const first = read();
  t.is(await all(first), numbered(1, 5));
  write(numbered(6, 8));
  await turn(10);
  write(numbered(9, 10));
  t.is(await all(read({ from: first.position(), tail: 1 })), numbered(6, 10));
});

test("lines before the given time are omitted, as precisely as marks allow", async (t) => {
  const { begin, home, read, write } = task(t);
  await begin(1_000);
  write("a\nb\n");
  const mtime = Date.now();
  writeFileSync(join(home, "stdout.marks"), "1000 0\n2000 2\n3000 4\n");
  write("c\n");
  t.is(await all(read({ sinceMs: 2_500 })), "b\nc\n");
  t.is(await all(read({ sinceMs: mtime + 60_000 })), "");
  const reader = read();
  const lines = (await reader.next()) ?? [];
  reader.close();
  t.deepEqual(
    lines.slice(0, 2).map(({ atMs }) => atMs),
    [2_000, 3_000],
  );
  t.regex(readFileSync(join(home, "stdout.marks"), "utf8"), /^1000 0\n/);
});

test("an endless line is delivered in pieces of bounded size", async (t) => {
  const { begin, read, write } = task(t);
  await begin(1_000);
  write("x".repeat(300_000));
  const reader = read();
  let bytes = 0;
  for (;;) {
    const lines = await reader.next();
    if (lines === null) break;
    for (const { data } of lines) {
      t.true(data.length <= 128 * 1024);
      bytes += data.length;
    }
  }
  t.is(bytes, 300_000);
});

test("times of marks increase with the size, whatever the marks contain", (t) => {
  const mark = fc.tuple(fc.nat(10_000), fc.nat(10_000));
  fc.assert(
    fc.property(fc.array(mark), fc.nat(10_000), (marks, endSize) => {
      const text = marks.map(([time, size]) => `${time} ${size}\n`).join("");
      const times = new OutputMarks(text, 20_000, endSize);
      let before = 0;
      for (let size = 0; size <= endSize; size += 97) {
        const time = times.timeOf(size);
        t.true(Number.isFinite(time) && time >= before && times.latestOf(size) >= time);
        before = time;
      }
    }),
    { numRuns: 50 },
  );
});
