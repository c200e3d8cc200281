// The control groups of Nomad's client, in a folder that stands for the file system of either version.
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { clientCgroups } from "../../linux/client-cgroups.ts";
import { until } from "../fixtures/until.ts";
import { SystemClock } from "../../runtime/system/clock.ts";

function rootWith(t: ExecutionContext, files: Readonly<Record<string, string>>): string {
  const root = mkdtempSync(join(tmpdir(), "muster-cgroups-"));
  t.teardown(() => rmSync(root, { recursive: true, force: true }));
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}

function optionsFor(root: string) {
  const warnings: string[] = [];
  const say = (_fields: object, message: string): void => void warnings.push(message);
  const log = { debug: () => {}, info: () => {}, warn: say, error: say };
  return { warnings, options: { clock: new SystemClock(), log, cpus: "0-3", root, kill: () => {} } };
}

test("version 2: controllers are enabled from the root down to the share, and each task has a scope", async (t) => {
  const root = rootWith(t, {
    "cgroup.controllers": "cpuset cpu io memory pids",
    "cgroup.subtree_control": "cpu memory",
  });
  const { options, warnings } = optionsFor(root);
  const cgroups = await clientCgroups(options);
  t.is(await cgroups?.make("a1", "web"), join(root, "nomad.slice/share/a1.web.scope"));
  t.true(existsSync(join(root, "nomad.slice/share/a1.web.scope")));
  const read = (path: string): string => readFileSync(join(root, path), "utf8");
  t.is(read("cgroup.subtree_control"), "+cpuset +io +pids", "controllers already enabled are left alone");
  for (const group of ["nomad.slice", "nomad.slice/share", "nomad.slice/reserve"])
    t.is(read(`${group}/cgroup.subtree_control`), "+cpuset +cpu +io +memory +pids");
  t.is(read("nomad.slice/share/cpuset.cpus"), "0-3");
  await cgroups?.end("a1", "web");
  t.false(existsSync(join(root, "nomad.slice/share/a1.web.scope")));
  t.deepEqual(warnings, []);
});

test("version 1: the share has processors and memory before a task can join it", async (t) => {
  const root = rootWith(t, { "cpuset/cpuset.mems": "0\n", "freezer/x": "", "memory/x": "", "cpu/x": "" });
  const { options } = optionsFor(root);
  const cgroups = await clientCgroups(options);
  t.is(await cgroups?.make("a1", "web"), join(root, "cpuset/nomad/share"));
  t.is(readFileSync(join(root, "cpuset/nomad/share/cpuset.cpus"), "utf8"), "0-3");
  t.is(readFileSync(join(root, "cpuset/nomad/share/cpuset.mems"), "utf8"), "0");
  for (const controller of ["freezer", "memory", "cpu"]) t.true(existsSync(join(root, controller, "nomad/a1.web")));
  await cgroups?.end("a1", "web");
  for (const controller of ["freezer", "memory", "cpu"]) t.false(existsSync(join(root, controller, "nomad/a1.web")));
});

test("a node that may not create them reports once which drivers lack them", async (t) => {
  // A file is in the place of the slice's folder.
  const root = rootWith(t, { "cgroup.controllers": "cpu", "nomad.slice": "" });
  const { options, warnings } = optionsFor(root);
  t.is(await clientCgroups(options), null);
  t.is(warnings.length, 1);
  t.regex(warnings[0] ?? "", /raw_exec cannot start/);
  t.is(await clientCgroups(optionsFor(rootWith(t, {})).options), null, "a node without any has nothing to report");
});

test("CC1, version 2: processes left in a task's scope are killed before it is removed", async (t) => {
  const root = rootWith(t, { "cgroup.controllers": "cpu" });
  const cgroups = await clientCgroups(optionsFor(root).options);
  const scope = (await cgroups?.make("a1", "web")) ?? "";
  writeFileSync(join(scope, "cgroup.procs"), "41\n42\n");
  const ended = cgroups?.end("a1", "web");
  const kill = join(scope, "cgroup.kill");
  await until("the scope's kill file", () => existsSync(kill) && readFileSync(kill, "utf8") === "1");
  // The kernel removes its files with their folder; these stay.
  rmSync(join(scope, "cgroup.procs"));
  await until("the scope to be removed", () => {
    rmSync(kill, { force: true });
    return !existsSync(scope);
  });
  await t.notThrowsAsync(async () => ended);
});

test("CC1, version 1: processes left in a task's group are frozen, killed and thawed", async (t) => {
  const root = rootWith(t, { "cpuset/cpuset.mems": "0\n", "freezer/x": "", "memory/x": "", "cpu/x": "" });
  const killed: number[] = [];
  const freezer = join(root, "freezer/nomad/a1.web");
  const states: string[] = [];
  const kill = (pid: number): void => {
    killed.push(pid);
    states.push(readFileSync(join(freezer, "freezer.state"), "utf8"));
    if (killed.length === 2) rmSync(join(freezer, "cgroup.procs"));
  };
  const cgroups = await clientCgroups({ ...optionsFor(root).options, kill });
  await cgroups?.make("a1", "web");
  writeFileSync(join(freezer, "cgroup.procs"), "41\n42\n");
  const ended = cgroups?.end("a1", "web");
  const state = join(freezer, "freezer.state");
  await until("a thawed group", () => killed.length >= 2 && readFileSync(state, "utf8") === "THAWED");
  rmSync(state);
  await ended;
  t.deepEqual(killed, [41, 42]);
  t.deepEqual(states, ["FROZEN", "FROZEN"]);
  t.false(existsSync(freezer));
});
