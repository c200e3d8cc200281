import { fileURLToPath } from "node:url";
import test from "ava";
import { filesOf, select } from "../selection.ts";

const file = "test/unit/selection.test.ts";
const files = [file, "test/cluster/nats-log.test.ts"];
const nothing = { runsChecks: false, groups: [], files: [], isWatching: false };

test("without arguments everything runs", (t) => {
  t.deepEqual(select([], files), { ...nothing, runsChecks: true, groups: ["unit", "sim", "cluster", "interop"] });
});

test("groups run in their own order, and only they do", (t) => {
  t.deepEqual(select(["sim", "unit"], files), { ...nothing, groups: ["unit", "sim"] });
  t.deepEqual(select(["checks"], files), { ...nothing, runsChecks: true });
});

test("a named file runs alone, or beside a group", (t) => {
  t.deepEqual(select([file], files), { ...nothing, files: [file] });
  t.deepEqual(select(["cluster", file], files), { ...nothing, groups: ["cluster"], files: [file] });
});

test("--watch watches unit tests, or what is named", (t) => {
  t.deepEqual(select(["--watch"], files), { ...nothing, groups: ["unit"], isWatching: true });
  t.deepEqual(select([file, "--watch"], files), { ...nothing, files: [file], isWatching: true });
  t.throws(() => select(["--watch", "checks"], files), { message: "--watch runs tests only: remove checks" });
});

test("an unknown name is an error that lists the groups", (t) => {
  t.throws(() => select(["unti"], files), {
    message:
      'unknown test group or file "unti": expected unit, sim, cluster, interop, checks, or a file that ends with .test.ts',
  });
});

test("the groups have every test file once", (t) => {
  const top = fileURLToPath(new URL("../..", import.meta.url));
  const all = filesOf(top, "unit", "sim", "cluster", "interop");
  t.is(new Set(all).size, all.length);
  t.true(all.includes(file));
  for (const group of ["sim", "cluster", "interop"] as const)
    for (const one of filesOf(top, group)) t.true(one.startsWith(`test/${group}/`), one);
});
