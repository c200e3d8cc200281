import { readFileSync } from "node:fs";
import test from "ava";
import { judgeMarks, knownMarks, rareMarks, seedsOfCi, type MarkRun } from "../sim/marks.ts";

const run = (changes: Partial<MarkRun>): MarkRun => ({
  reached: new Set(["fault.pause", "log.tail.lost"]),
  known: ["fault.pause", "log.tail.lost"],
  rare: {},
  from: 1,
  passed: seedsOfCi,
  failed: 0,
  ...changes,
});

test("a run of CI's seeds that reaches every known mark has neither a problem nor a note", (t) => {
  t.deepEqual(judgeMarks(run({})), { problems: [], notes: [] });
});

test("a known mark that none of CI's seeds reached is a problem, with its name", (t) => {
  const { notes, problems } = judgeMarks(run({ reached: new Set(["fault.pause"]) }));
  t.is(problems.length, 1);
  t.regex(problems[0] ?? "", /^no seed reached log\.tail\.lost: /);
  t.deepEqual(notes, []);
});

test("a mark listed with a reason may be missed, and the reason is reported", (t) => {
  const rare = { "log.tail.lost": "test/sim/log-loss.test.ts tries it" };
  const { notes, problems } = judgeMarks(run({ reached: new Set(["fault.pause"]), rare }));
  t.deepEqual(problems, []);
  t.deepEqual(notes, ["log.tail.lost was not reached: test/sim/log-loss.test.ts tries it"]);
});

test("a rare mark that was reached is as good as any", (t) => {
  t.deepEqual(judgeMarks(run({ rare: { "fault.pause": "a test" } })), { problems: [], notes: [] });
});

for (const [what, changes] of [
  ["fewer seeds than CI's", { passed: seedsOfCi - 1 }],
  ["other seeds than CI's", { from: 2 }],
  ["a run in which a seed failed", { failed: 1 }],
] as const) {
  test(`a mark that ${what} missed is only noted`, (t) => {
    const { notes, problems } = judgeMarks(run({ reached: new Set(["fault.pause"]), ...changes }));
    t.deepEqual(problems, []);
    t.deepEqual(notes, ["log.tail.lost was not reached"]);
  });
}

test("CI runs the number of seeds that the rule requires, from the first on", (t) => {
  const script = readFileSync(new URL("../../.ci/run", import.meta.url), "utf8");
  t.regex(script, new RegExp(`sim -- --seeds ${seedsOfCi}$`, "m"));
});

test("the list of optional marks has only known marks, each once", (t) => {
  t.is(new Set(knownMarks).size, knownMarks.length);
  for (const mark of Object.keys(rareMarks)) t.true((knownMarks as readonly string[]).includes(mark), mark);
});
