// The list of `npm run mutants`, which itself takes too long for every test run.
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import test from "ava";
import { mutants, sample } from "../mutants/list.ts";
import { broken, type Mutant } from "../mutants/mutant.ts";
import { meetsGoal, type Found } from "../mutants/verdict.ts";

const top = fileURLToPath(new URL("../../", import.meta.url));

test("every mutant still applies to the tree, and its tests exist", (t) => {
  const problems: string[] = [];
  for (const mutant of mutants) {
    try {
      broken(mutant, readFileSync(top + mutant.file, "utf8"));
    } catch (error) {
      problems.push(String(error));
    }
    if (mutant.original === mutant.replacement) problems.push(`${mutant.name} changes nothing`);
    if (mutant.tests.length === 0) problems.push(`${mutant.name} names no tests`);
    for (const file of mutant.tests)
      if (!existsSync(`${top}test/${file}.test.ts`))
        problems.push(`${mutant.name} names test/${file}.test.ts, which does not exist`);
  }
  t.deepEqual(problems, []);
});

test("there are at least 60 mutants, each with a unique name", (t) => {
  t.true(mutants.length >= 60);
  t.is(new Set(mutants.map(({ name }) => name)).size, mutants.length);
});

test("CI's sample is part of the list", (t) => {
  const names = new Set(mutants.map(({ name }) => name));
  t.deepEqual(
    sample.filter((name) => !names.has(name)),
    [],
  );
});

const mutant: Mutant = {
  name: "m",
  file: "f.ts",
  original: "a + b",
  replacement: "a - b",
  breaks: "sums",
  kind: "logic",
  tests: ["unit/mutants"],
};

test("a mutant replaces its line, and fails if the line is missing or not unique", (t) => {
  t.is(broken(mutant, "return a + b;"), "return a - b;");
  t.throws(() => broken(mutant, "return a;"), { message: /does not contain the original text/ });
  t.throws(() => broken(mutant, "a + b; a + b;"), { message: /more than once/ });
});

const found = (kind: Mutant["kind"], byTests: boolean, bySeeds: boolean): Found => ({
  mutant: { ...mutant, kind },
  tests: byTests ? "found" : "missed",
  seeds: bySeeds ? "found" : "missed",
});

test("the goal is missed when a mutant survives both, or seeds find fewer than two thirds of theirs", (t) => {
  const timed = "time-fault-order";
  t.true(meetsGoal([found("logic", true, false), found(timed, false, true), found(timed, false, true)]));
  t.false(meetsGoal([found("logic", false, false)]));
  t.true(meetsGoal([found(timed, true, false), found(timed, true, true), found(timed, true, true)]));
  t.false(meetsGoal([found(timed, true, false), found(timed, true, false), found(timed, true, true)]));
});
