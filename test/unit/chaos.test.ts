// How a chaos run judges: the record of writes, its options, and the clock that it steps.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import test from "ava";
import { clockMissing, setClock } from "../chaos/clock.ts";
import { chaosOptions } from "../chaos/options.ts";
import { UsageError } from "../support/script-arguments.ts";
import { WriteRecord } from "../chaos/write-record.ts";

const listed = (contents: Readonly<Record<string, string>>): ReadonlyMap<string, string> =>
  new Map(Object.entries(contents));

test("an acknowledged write that is missing, outdated or undone is a problem", (t) => {
  const record = new WriteRecord();
  record.acknowledged("a", "v1");
  record.acknowledged("a", "v2");
  t.deepEqual(record.problems(listed({ a: "v2" })), []);
  t.regex(record.problems(listed({})).join(), /^a is absent and should be v2 /);
  t.regex(record.problems(listed({ a: "v1" })).join(), /^a is v1 and should be v2 /);
  record.acknowledged("a", null);
  t.deepEqual(record.problems(listed({})), []);
  t.regex(record.problems(listed({ a: "v2" })).join(), /^a exists but should be absent .*absent acknowledged\]$/);
});

test("a rejected write must not be listed, and one without an answer may be", (t) => {
  const record = new WriteRecord();
  record.refused("a", "v1", "no space");
  t.deepEqual(record.problems(listed({})), []);
  t.regex(record.problems(listed({ a: "v1" })).join(), /^a is v1 and should be absent .*refused \(no space\)\]$/);
  record.acknowledged("b", "v1");
  record.unknown("b", "v2", "too late");
  record.unknown("b", null, "too late");
  for (const contents of [{ b: "v1" }, { b: "v2" }, {}]) t.deepEqual(record.problems(listed(contents)), []);
  t.is(record.problems(listed({ b: "v3" })).length, 1);
  // The next acknowledgement ends the doubt.
  record.acknowledged("b", "v4");
  t.is(record.problems(listed({ b: "v2" })).length, 1);
  t.deepEqual(record.counts, { acknowledged: 2, refused: 1, unknown: 2 });
});

test("content that nobody wrote is a problem", (t) => {
  t.deepEqual(new WriteRecord().problems(listed({ a: "v1" })), ["a exists but should be absent [never written]"]);
});

test("a chaos run parses its options", (t) => {
  t.deepEqual(chaosOptions([]), { faults: 40, seed: 1, only: [] });
  const args = ["--faults", "300", "--seed", "7", "--only", "delay,wiped nats"];
  t.deepEqual(chaosOptions(args), { faults: 300, seed: 7, only: ["delay", "wiped nats"] });
  for (const wrong of [["--faults", "0"], ["--seed", "x"], ["--only", "rain"], ["--what"], ["here"]])
    t.throws(() => chaosOptions(wrong), { instanceOf: UsageError, message: /usage: npm run chaos/ });
});

const clockTest = clockMissing() === null ? test : test.skip;

clockTest("a stepped clock affects one process's wall clock, and not its monotonic clock", async (t) => {
  const script = "setInterval(() => console.log(Date.now(), Math.round(performance.now())), 20)";
  const child = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "inherit"] });
  t.teardown(() => child.kill("SIGKILL"));
  const lines = createInterface({ input: child.stdout });
  const next = async (): Promise<{ readonly aheadMs: number; readonly monotonicMs: number }> => {
    // A line already in transit may be from before a step.
    await once(lines, "line");
    const [line] = (await once(lines, "line")) as [string];
    const [wall = 0, monotonicMs = 0] = line.split(" ").map(Number);
    return { aheadMs: wall - Date.now(), monotonicMs };
  };
  const pid = child.pid ?? 0;
  const { monotonicMs } = await next();
  const hourMs = 3_600_000;
  for (const hours of [5, -7, 0]) {
    await setClock(pid, (hours * hourMs) / 1_000);
    const { aheadMs } = await next();
    // A busy machine may take long for a line.
    t.true(Math.abs(aheadMs - hours * hourMs) < hourMs / 2, `${hours} h: ${aheadMs} ms ahead`);
  }
  const after = await next();
  t.true(after.monotonicMs >= monotonicMs && after.monotonicMs - monotonicMs < hourMs / 2);
});
