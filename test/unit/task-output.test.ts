// The process that keeps tasks' output, and the directories of driver tasks, on a real disk.
import { execFile, execFileSync } from "node:child_process";
import {
  existsSync,
  lstatSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import type { DriverTask, OutputRequest } from "../../actors/agent/ports.ts";
import { OutputClient } from "../../linux/output/client.ts";
import { TaskHomeDirectories } from "../../linux/task-home/homes.ts";
import { DriverSpec, FileTarget, SecretReference } from "../../proto/gen/messages.ts";
import { SystemClock } from "../../runtime/system/clock.ts";
import { commandOf, kill, processesOf } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";

const run = promisify(execFile);
const log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
const mebibyte = 1024 * 1024;

function folderOf(t: ExecutionContext): string {
  const folder = mkdtempSync(join(tmpdir(), "mo"));
  t.teardown(async () => {
    for (const pid of processesOf(folder)) kill(pid);
    await until("the collector to exit", () => processesOf(folder).length === 0);
    rmSync(folder, { recursive: true, force: true });
  });
  return folder;
}

function collector(folder: string): number {
  const pid = processesOf(folder).find((each) => commandOf(each).includes("linux/output/main.ts"));
  if (pid === undefined) throw new Error("no collector is running");
  return pid;
}

function homesIn(t: ExecutionContext, folder: string): TaskHomeDirectories {
  const homes = new TaskHomeDirectories({
    directory: join(folder, "allocs"),
    outputSocket: join(folder, "o.sock"),
    clock: new SystemClock(),
    log,
    environment: { PATH: "/usr/bin:/bin" },
    users: { fallback: "", allowsRoot: true },
  });
  t.teardown(() => homes.close());
  return homes;
}

const task: DriverTask = {
  id: "task1",
  name: "web.2.task1",
  slot: 2,
  serviceId: "service1",
  serviceName: "web",
  serviceLabels: {},
  nodeId: "node1",
  nodeHostname: "one",
  nodePlatform: { architecture: "x86_64", os: "linux" },
  payload: null,
  secrets: new Map([["s1", { data: new TextEncoder().encode("hidden"), template: null }]]),
  configs: new Map(),
  traceparent: "",
};

const wants = { name: "web", isolation: "none", hasOutput: true, isBare: false } as const;
const all: OutputRequest = {
  stdout: true,
  stderr: true,
  tail: null,
  sinceMs: 0,
  follow: false,
  from: null,
  isOver: () => true,
};

test("OC1, OC2: 200 MiB at once costs bounded memory and disk space, and its end is kept", async (t) => {
  const folder = folderOf(t);
  const pipes = { stdout: join(folder, "out"), stderr: join(folder, "err") };
  execFileSync("mkfifo", Object.values(pipes));
  const client = new OutputClient(join(folder, "o.sock"), log);
  t.teardown(() => client.close());
  await client.open({ taskId: "t", directory: folder, pipes, bytesMax: 4 * mebibyte });
  const startedAt = performance.now();
  await run("sh", ["-c", `{ head -c ${200 * mebibyte} /dev/zero; echo; echo the end; } > ${pipes.stdout}`]);
  const seconds = (performance.now() - startedAt) / 1_000;
  await client.drain("t", 2_000);
  t.log(`${Math.round(200 / seconds)} MiB/s`);
  t.true(statSync(join(folder, "stdout")).size < 5 * mebibyte);
  t.true(statSync(join(folder, "stdout.1")).size < 5 * mebibyte);
  t.true(readFileSync(join(folder, "stdout"), "latin1").endsWith("the end\n"));
  const [, kibibytes] = /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${collector(folder)}/status`, "utf8")) ?? [];
  t.true(Number(kibibytes) < 120 * 1024, `${kibibytes} kB at most`);
});

test("OC3: a full disk loses output and stops no task", async (t) => {
  const folder = folderOf(t);
  const pipes = { stdout: join(folder, "out"), stderr: join(folder, "err") };
  execFileSync("mkfifo", Object.values(pipes));
  symlinkSync("/dev/full", join(folder, "stdout"));
  const client = new OutputClient(join(folder, "o.sock"), log);
  t.teardown(() => client.close());
  await client.open({ taskId: "t", directory: folder, pipes, bytesMax: mebibyte });
  await run("sh", ["-c", `head -c ${mebibyte} /dev/zero > ${pipes.stdout}; echo fine > ${pipes.stderr}`]);
  await client.drain("t", 2_000);
  t.is(readFileSync(join(folder, "stderr"), "utf8"), "fine\n");
});

test("OC4: the collector is found again, and restarted with the pipes that were open", async (t) => {
  const folder = folderOf(t);
  const pipes = { stdout: join(folder, "out"), stderr: join(folder, "err") };
  execFileSync("mkfifo", Object.values(pipes));
  const first = new OutputClient(join(folder, "o.sock"), log);
  await first.open({ taskId: "t", directory: folder, pipes, bytesMax: mebibyte });
  const pid = collector(folder);
  await first.close();
  writeFileSync(pipes.stdout, "nobody listens\n");
  const second = new OutputClient(join(folder, "o.sock"), log);
  t.teardown(() => second.close());
  await second.open({ taskId: "t", directory: folder, pipes, bytesMax: mebibyte });
  t.is(collector(folder), pid);
  kill(pid);
  await until("another one", () => processesOf(folder).length > 0 && collector(folder) !== pid);
  await run("sh", ["-c", `echo once more > ${pipes.stdout}`]);
  await second.drain("t", 2_000);
  t.is(readFileSync(join(folder, "stdout"), "utf8"), "nobody listens\nonce more\n");
});

test("TH1, TH2: a task has its directories, its secrets in memory and its variables, and nothing of it is left", async (t) => {
  const folder = folderOf(t);
  const homes = homesIn(t, folder);
  const reference = SecretReference.create({
    secretId: "s1",
    secretName: "key",
    file: FileTarget.create({ name: "key", uid: "0", gid: "0", mode: 0o400 }),
  });
  const spec = DriverSpec.create({
    env: ["WHERE=${NOMAD_TASK_DIR}/x", "SLOT={{.Task.Slot}}", "SHELL_ONLY=${not.known}"],
    secrets: [reference],
  });
  const outcome = await homes.prepare(task, spec, wants);
  if (outcome.kind === "refused") throw new Error(outcome.reason);
  const { allocDir, env, stdoutPath } = outcome.home;
  t.is(env["NOMAD_TASK_DIR"], join(allocDir, "web/local"));
  t.is(env["WHERE"], join(allocDir, "web/local/x"));
  t.is(env["SLOT"], "2");
  t.is(env["SHELL_ONLY"], "${not.known}");
  t.is(env["NOMAD_ALLOC_INDEX"], "1");
  t.deepEqual(
    Object.keys(env).filter((name) => /TOKEN|SECRET_KEY/.test(name)),
    [],
  );
  t.true(lstatSync(stdoutPath).isFIFO());
  const secrets = env["NOMAD_SECRETS_DIR"] as string;
  t.is(secrets, join(allocDir, "web/secrets"));
  t.is(readFileSync(join(secrets, "key"), "utf8"), "hidden");
  t.is(statSync(secrets).mode & 0o777, 0o700);
  t.is(statSync(join(allocDir, "alloc")).mode & 0o7777, 0o1777);
  t.is(statSync(join(allocDir, "output")).mode & 0o777, 0o700);
  writeFileSync(stdoutPath, "hello\n");
  await homes.end(task.id);
  t.false(existsSync(join(secrets, "key")));
  const reader = homes.output(task.id, all);
  const lines = await reader.next();
  reader.close();
  t.deepEqual(
    lines?.map(({ data }) => Buffer.from(data).toString()),
    ["hello\n"],
  );
  t.is(await homes.lastOutput(task.id), "hello");
  await homes.remove(task.id);
  t.deepEqual(readdirSync(join(folder, "allocs")), []);
  const contained = await homes.prepare({ ...task, id: "task2" }, DriverSpec.create(), {
    ...wants,
    isolation: "image",
  });
  const inside = contained.kind === "ready" ? contained.home.env : {};
  t.like(inside, { NOMAD_TASK_DIR: "/local", NOMAD_SECRETS_DIR: "/secrets", NOMAD_ALLOC_DIR: "/alloc" });
  t.is(env["PATH"], "/usr/bin:/bin");
  t.is(inside["PATH"], undefined, "an image has its own");
  await homes.remove("task2");
});

test("an invalid environment or file rejects a task before anything is created", async (t) => {
  const folder = folderOf(t);
  const homes = homesIn(t, folder);
  const outcome = await homes.prepare(task, DriverSpec.create({ env: ["A={{.Nope"] }), wants);
  t.is(outcome.kind, "refused");
  const missing = SecretReference.create({
    secretId: "s2",
    secretName: "lost",
    file: FileTarget.create({ name: "k" }),
  });
  const second = await homes.prepare(task, DriverSpec.create({ secrets: [missing] }), wants);
  t.regex(second.kind === "refused" ? second.reason : "", /lost was not sent to this node/);
  t.false(existsSync(join(folder, "allocs")));
});
