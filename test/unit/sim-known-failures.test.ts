import test from "ava";
import { judgeSeed, knownFailures, type KnownFailure } from "../sim/known-failures.ts";
import { seedsOfCi } from "../sim/marks.ts";

const known = { claim: "S22", finding: "an agent was not offered the new root" };

test("a seed that is not known to fail passes or fails by itself", (t) => {
  t.is(judgeSeed(undefined, null).verdict, "passed");
  t.is(judgeSeed(undefined, "S1: two leaders").verdict, "failed");
});

test("a known failure is reported, and fails nothing", (t) => {
  t.deepEqual(judgeSeed(known, "S22: a1 does not trust m2"), { verdict: "known", note: known.finding });
});

test("a seed that is known to fail and passes, or fails otherwise, fails the run", (t) => {
  t.like(judgeSeed(known, null), { verdict: "failed" });
  t.regex(judgeSeed(known, null).note, /remove it from/);
  t.is(judgeSeed(known, "S1: two leaders").verdict, "failed");
});

test("only CI's seeds are listed, each with a claim and a finding", (t) => {
  const isListed = (seed: number, { claim, finding }: KnownFailure): boolean =>
    seed >= 1 && seed <= seedsOfCi && /^[A-Z]\d+$/.test(claim) && finding.length > 20;
  t.false(isListed(seedsOfCi + 1, known));
  t.deepEqual(
    [...knownFailures].filter(([seed, failure]) => !isListed(seed, failure)),
    [],
  );
});
