import test from "ava";
import { placeOfTitle } from "../ava.ts";
import { coverageLine, summaryOfCoverage } from "../support/chart-coverage.ts";
import { reference, slownessOf } from "../support/slowness.ts";

const files = ["test/interop/driver/podman.test.ts", "test/interop/podman.test.ts", "test/unit/task.test.ts"];

test("a test's file is found by its title, and the longest path wins", (t) => {
  t.deepEqual(placeOfTitle("driver › podman › starts", files), { file: files[0] as string, name: "starts" });
  t.deepEqual(placeOfTitle("task › a title › with arrows", files), {
    file: files[2] as string,
    name: "a title › with arrows",
  });
});

test("a title that matches no file has no file", (t) => {
  t.is(placeOfTitle("Exited because no new tests completed", files), null);
  t.is(placeOfTitle("taskless › starts", files), null);
});

test("deadlines grow with the slower of computing and starting processes, at most tenfold, and never shrink", (t) => {
  const { computeMs, startsMs } = reference;
  t.is(slownessOf(reference), 1);
  t.is(slownessOf({ computeMs: computeMs / 2, startsMs: startsMs / 3 }), 1);
  t.is(slownessOf({ computeMs: 2 * computeMs, startsMs }), 2);
  t.is(slownessOf({ computeMs, startsMs: 3.5 * startsMs }), 3.5);
  t.is(slownessOf({ computeMs: 100 * computeMs, startsMs }), 10);
});

test("the log lines of charts add up to one summary, each chart counted once", (t) => {
  const line = coverageLine("session", { states: { reached: 3, all: 4 }, transitions: { reached: 5, all: 9 } });
  const other = coverageLine("ledger", { states: { reached: 1, all: 1 }, transitions: { reached: 2, all: 2 } });
  const text = summaryOfCoverage([`#   ${line}`, "#   3 places", `#   ${other}`, `#   ${line}`]);
  t.regex(text ?? "", /^2 charts: .* reach 4 of 5 states and 7 of 11 transitions/);
  t.is(summaryOfCoverage(["#   3 places"]), null);
});
