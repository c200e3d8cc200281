// The exec driver with real processes: started, stopped, found again by another life of the driver, cleaned up after.
import { execFile, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync, existsSync } from "node:fs";
import { tmpdir, hostname, userInfo } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import type { DriverTask, TaskDriver } from "../../actors/agent/agent-ports.ts";
import { ExecDriver } from "../../drivers/exec/driver.ts";
import { membersOf, parseStat } from "../../drivers/exec/process.ts";
import { Any, Duration, ExecSpec } from "../../proto/gen/messages.ts";
import { SystemClock } from "../../runtime/system/clock.ts";

const quiet = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

interface Bench {
  readonly directory: string;
  /** Another life of the driver over the same directory. */
  readonly driver: (options?: { outputBytesMax?: number }) => ExecDriver;
}

function bench(t: ExecutionContext): Bench {
  const directory = mkdtempSync(join(tmpdir(), "muster-exec-"));
  const drivers: ExecDriver[] = [];
  const started = new Set<string>();
  t.teardown(async () => {
    const last = drivers.at(-1);
    for (const id of started) {
      await last?.find(id);
      await last?.stop(id);
    }
    for (const driver of drivers) driver.close();
    rmSync(directory, { recursive: true, force: true });
  });
  return {
    directory,
    driver: (options = {}) => {
      const driver = new ExecDriver({
        directory,
        clock: new SystemClock(),
        log: quiet,
        environment: { PATH: process.env["PATH"], HOME: "/nowhere", SECRET: "of the agent" },
        ...options,
      });
      const start = driver.start.bind(driver);
      driver.start = (task) => {
        started.add(task.id);
        return start(task);
      };
      drivers.push(driver);
      return driver;
    },
  };
}

function task(id: string, spec: Partial<ExecSpec>, more: Partial<DriverTask> = {}): DriverTask {
  return {
    id,
    name: `web.2.${id}`,
    slot: 2,
    serviceId: "svc",
    serviceName: "web",
    serviceLabels: { tier: "front", "a.b": "dotted" },
    nodeId: "node1",
    nodeHostname: "host1",
    nodePlatform: { architecture: "x86_64", os: "linux" },
    payload: Any.create({
      type_url: "type.muster.dev/muster.v1.ExecSpec",
      value: ExecSpec.encode(ExecSpec.create(spec)),
    }),
    secrets: new Map(),
    configs: new Map(),
    traceparent: "",
    ...more,
  };
}

const sh = (script: string): Partial<ExecSpec> => ({ command: "/bin/sh", args: ["-c", script] });
const seconds = (count: number): Duration => Duration.create({ seconds: Math.floor(count), nanos: (count % 1) * 1e9 });

async function run(driver: TaskDriver, of: DriverTask): Promise<number> {
  const prepared = await driver.prepare(of);
  if (prepared.kind === "refused") throw new Error(prepared.reason);
  const started = await driver.start(of);
  if (started.kind === "refused") throw new Error(started.reason);
  return started.pid;
}

const isLive = (pid: number): boolean => {
  try {
    return parseStat(readFileSync(`/proc/${pid}/stat`, "latin1"))?.state !== "Z";
  } catch {
    return false;
  }
};

async function until(t: ExecutionContext, what: string, condition: () => boolean): Promise<void> {
  for (let at = 0; at < 500; at += 1) {
    if (condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  t.fail(`not within 5 s: ${what}`);
}

test("a command that ends by itself leaves its exit code and its output", async (t) => {
  const { driver, directory } = bench(t);
  const exec = driver();
  await run(exec, task("t1", sh("echo out; echo err >&2; exit 3")));
  t.deepEqual(await exec.wait("t1"), { code: 3, signal: "", reason: "", lastOutput: "err" });
  t.is(readFileSync(join(directory, "t1", "stdout"), "utf8"), "out\n");
  t.is(readFileSync(join(directory, "t1", "stderr"), "utf8"), "err\n");
  await run(exec, task("t2", sh("exit 0")));
  t.is((await exec.wait("t2")).code, 0);
});

test("a command leads nothing of the agent's session and gets only the environment of its spec", async (t) => {
  const { driver, directory } = bench(t);
  const exec = driver();
  const env = [
    "NAME={{.Task.Name}}",
    "WHERE={{ .Node.Hostname }}/{{.Node.ID}}",
    'LABEL={{.Service.Labels.tier}}-{{index .Service.Labels "a.b"}}',
    "SLOT={{.Task.Slot}}",
    "HOME=/elsewhere",
  ];
  const pid = await run(
    exec,
    task(
      "t1",
      { ...sh("env; sleep 60"), env },
      { traceparent: "00-11111111111111111111111111111111-2222222222222222-01" },
    ),
  );
  await until(t, "env was printed", () => readFileSync(join(directory, "t1", "stdout"), "utf8").includes("SLOT="));
  const printed = readFileSync(join(directory, "t1", "stdout"), "utf8")
    .trim()
    .split("\n")
    .filter((line) => !/^(PWD|OLDPWD|SHLVL|_)=/.test(line))
    .sort();
  t.deepEqual(printed, [
    "HOME=/elsewhere",
    "LABEL=front-dotted",
    "NAME=web.2.t1",
    `PATH=${process.env["PATH"]}`,
    "SLOT=2",
    "TRACEPARENT=00-11111111111111111111111111111111-2222222222222222-01",
    "WHERE=host1/node1",
  ]);
  const facts = parseStat(readFileSync(`/proc/${pid}/stat`, "latin1"));
  t.is(facts?.session, pid);
  t.is(facts?.group, pid);
  t.is(readFileSync(`/proc/${pid}/cwd/../run`, "utf8").split(" ")[0], "stat");
});

test("a stop is the task's signal to its whole group, and its exit code is told", async (t) => {
  const { driver, directory } = bench(t);
  const exec = driver();
  await run(
    exec,
    task("t1", { ...sh("trap 'echo bye; exit 7' INT; echo up; while :; do sleep 0.05; done"), stopSignal: "SIGINT" }),
  );
  await until(t, "it is up", () => readFileSync(join(directory, "t1", "stdout"), "utf8") === "up\n");
  t.is((await exec.stop("t1"))?.code, 7);
  t.is(readFileSync(join(directory, "t1", "stdout"), "utf8"), "up\nbye\n");
});

test("a command with default dispositions dies of its stop signal, SIGINT included", async (t) => {
  const exec = bench(t).driver();
  for (const stopSignal of ["SIGINT", "SIGQUIT", "SIGTERM", "HUP", "SIGUSR1"]) {
    await run(
      exec,
      task(`t-${stopSignal}`, { command: "sleep", args: ["60"], stopSignal, stopGracePeriod: seconds(20) }),
    );
    const exit = await exec.stop(`t-${stopSignal}`);
    t.is(exit?.signal, stopSignal === "HUP" ? "SIGHUP" : stopSignal, stopSignal);
  }
});

test("what does not stop within its grace is killed, with everything that it started", async (t) => {
  const { driver, directory } = bench(t);
  const exec = driver();
  const script =
    "trap '' TERM; sleep 61 & setsid -f true; (trap '' TERM; while :; do sleep 1; done) & echo $! > pids; echo up; while :; do sleep 1; done";
  const pid = await run(exec, task("t1", { ...sh(script), stopGracePeriod: seconds(0.2) }));
  await until(t, "it is up", () => readFileSync(join(directory, "t1", "stdout"), "utf8") === "up\n");
  const began = Date.now();
  t.is((await exec.stop("t1"))?.signal, "SIGKILL");
  t.true(Date.now() - began >= 190);
  const child = Number(readFileSync(join(directory, "t1", "work", "pids"), "utf8"));
  t.false(isLive(pid));
  t.false(isLive(child));
});

test("what a finished command leaves running is killed, even in a process group of its own", async (t) => {
  const { driver, directory } = bench(t);
  const exec = driver();
  await run(exec, task("t1", { command: "bash", args: ["-c", "set -m; sleep 62 & echo $! > pid; exit 0"] }));
  t.is((await exec.wait("t1")).code, 0);
  t.false(isLive(Number(readFileSync(join(directory, "t1", "work", "pid"), "utf8"))));
});

test("another life of the driver finds what runs, waits for it and stops it", async (t) => {
  const { driver, directory } = bench(t);
  const before = driver();
  const pid = await run(before, task("t1", { command: "sleep", args: ["60"] }));
  await run(before, task("t2", sh("until [ -e go ]; do sleep 0.02; done; exit 5")));
  before.close();
  const after = driver();
  t.deepEqual(await after.find("t1"), { kind: "running", pid });
  t.is((await after.find("t2")).kind, "running");
  writeFileSync(join(directory, "t2", "work", "go"), "");
  t.is((await after.wait("t2")).code, 5);
  t.is((await after.stop("t1"))?.signal, "SIGTERM");
  t.false(isLive(pid));
  t.deepEqual(await after.find("never"), { kind: "absent" });
});

test("what ended while no driver lived is found with its exit code", async (t) => {
  const { driver, directory } = bench(t);
  const before = driver();
  await run(before, task("t1", sh("echo last words; exit 9")));
  await before.wait("t1");
  before.close();
  const found = await driver().find("t1");
  t.deepEqual(found.kind === "exited" && found.exit, { code: 9, signal: "", reason: "", lastOutput: "last words" });
  // As after a start of the machine: the run file names another boot.
  const path = join(directory, "t1", "run");
  writeFileSync(
    path,
    readFileSync(path, "utf8")
      .replace(/boot .*/, "boot another")
      .replace(/exit .*\n/, ""),
  );
  const afterBoot = await driver().find("t1");
  t.is(afterBoot.kind === "exited" && afterBoot.exit.reason, "the node was restarted while it ran");
});

test("a process that has the number of an ended one is not taken for it", async (t) => {
  const { driver, directory } = bench(t);
  const before = driver();
  await run(before, task("t1", sh("exit 0")));
  await before.wait("t1");
  before.close();
  const stranger = spawn("sleep", ["60"], { detached: true });
  t.teardown(() => stranger.kill("SIGKILL"));
  const path = join(directory, "t1", "run");
  writeFileSync(
    path,
    readFileSync(path, "utf8")
      .replace(/^stat \d+/, `stat ${stranger.pid}`)
      .replace(/exit .*\n/, ""),
  );
  const after = driver();
  t.is((await after.find("t1")).kind, "exited");
  await after.stop("t1");
  t.true(isLive(stranger.pid as number));
});

test("a driver's own end does not end its tasks", async (t) => {
  const { driver, directory } = bench(t);
  const script = join(directory, "life.ts");
  const root = new URL("../..", import.meta.url).pathname;
  writeFileSync(
    script,
    `
    import { ExecDriver } from ${JSON.stringify(join(root, "drivers/exec/driver.ts"))};
    import { SystemClock } from ${JSON.stringify(join(root, "runtime/system/clock.ts"))};
    import { Any, ExecSpec } from ${JSON.stringify(join(root, "proto/gen/messages.ts"))};
    const log = { debug() {}, info() {}, warn() {}, error() {} };
    const driver = new ExecDriver({ directory: ${JSON.stringify(directory)}, clock: new SystemClock(), log, environment: process.env });
    const payload = Any.create({ type_url: "muster.v1.ExecSpec", value: ExecSpec.encode(ExecSpec.create({ command: "/bin/sh", args: ["-c", "until [ -e go ]; do sleep 0.02; done; exit 4"] })) });
    const task = { id: "t1", name: "n", slot: 1, serviceId: "s", serviceName: "s", serviceLabels: {}, nodeId: "n", nodeHostname: "h", nodePlatform: {}, payload, secrets: new Map(), configs: new Map(), traceparent: "" };
    await driver.prepare(task);
    await driver.start(task);
    process.kill(process.pid, "SIGKILL");
  `,
  );
  await new Promise((resolve) => execFile(process.execPath, [script], resolve));
  const after = driver();
  t.is((await after.find("t1")).kind, "running");
  writeFileSync(join(directory, "t1", "work", "go"), "");
  t.is((await after.wait("t1")).code, 4);
});

const refusals: readonly (readonly [string, Partial<ExecSpec>, RegExp])[] = [
  ["an unknown command", { command: "no-such-command" }, /^exec: no-such-command is not found in the node's PATH$/],
  ["a path that is no program", { command: "/etc/passwd" }, /^exec: \/etc\/passwd is not an executable file/],
  ["no command", {}, /names no command/],
  ["an unknown directory", { command: "true", dir: "/no/such" }, /there is no directory \/no\/such/],
  ["an unknown user", { command: "true", user: "nobody-of-that-name" }, /there is no user/],
  ["an unknown signal", { command: "true", stopSignal: "SIGNONE" }, /not a signal/],
  [
    "an unknown template",
    { command: "true", env: ["A={{.Task.Colour}}"] },
    /^exec: the template of A cannot be expanded: .*Colour/,
  ],
  ["a malformed environment", { command: "true", env: ["A"] }, /is not NAME=value/],
];
for (const [what, spec, reason] of refusals) {
  test(`${what} is refused before anything starts`, async (t) => {
    const { driver, directory } = bench(t);
    const outcome = await driver().prepare(task("t1", spec));
    t.regex(outcome.kind === "refused" ? outcome.reason : "", reason);
    t.false(existsSync(join(directory, "t1")));
  });
}

test("a payload of another type is refused by its name", async (t) => {
  const outcome = await bench(t)
    .driver()
    .prepare(task("t1", {}, { payload: Any.create({ type_url: "x/y.Z" }) }));
  t.regex(outcome.kind === "refused" ? outcome.reason : "", /not a muster\.v1\.ExecSpec but 'x\/y\.Z'/);
});

(userInfo().uid === 0 ? test : test.skip)(
  "a task of another user runs as that user in a directory that is its own",
  async (t) => {
    const { driver, directory } = bench(t);
    const exec = driver();
    await run(exec, task("t1", { ...sh("id -u; id -G; pwd; touch mine; echo $HOME"), user: "nobody" }));
    const exit = await exec.wait("t1");
    t.is(exit.code, 0, exit.lastOutput);
    const [uid, groups, , home] = readFileSync(join(directory, "t1", "stdout"), "utf8").split("\n");
    t.is(uid, "65534");
    t.is(groups, "65534");
    t.is(home, "/nonexistent");
    t.true(existsSync(join(directory, "t1", "work", "mine")));
  },
);

test("output beyond the limit is rotated while the task writes on", async (t) => {
  const { rotate } = await import("../../drivers/exec/output.ts");
  const { driver, directory } = bench(t);
  const exec = driver();
  await run(exec, task("t1", sh("i=0; while :; do i=$((i+1)); echo line $i; sleep 0.01; done")));
  const home = join(directory, "t1");
  await until(t, "some output", () => readFileSync(join(home, "stdout")).length > 100);
  await rotate(home, { bytesMax: 50, marked: { stdout: 0, stderr: 0 }, nowMs: 1 });
  t.regex(readFileSync(join(home, "stdout.1"), "utf8"), /^line 1\n/);
  await until(t, "it writes on", () => /^line \d+\n/.test(readFileSync(join(home, "stdout"), "utf8")));
});

test("a removed task leaves nothing on the disk", async (t) => {
  const { driver, directory } = bench(t);
  const exec = driver();
  await run(exec, task("t1", sh("echo hello")));
  await exec.wait("t1");
  await exec.remove("t1");
  t.false(existsSync(join(directory, "t1")));
  t.deepEqual(await exec.find("t1"), { kind: "absent" });
});

test("calls for one task happen in their order: a stop never overtakes the start before it", async (t) => {
  const exec = bench(t).driver();
  const of = task("t1", { command: "sleep", args: ["60"] });
  const [, started, stopped] = await Promise.all([exec.prepare(of), exec.start(of), exec.stop("t1")]);
  t.is(started.kind, "started");
  t.is(stopped?.signal, "SIGTERM");
});

test("a process older than a leader is not one of its members", (t) => {
  const own = parseStat(readFileSync("/proc/self/stat", "latin1"));
  if (own === null) throw new Error(`no /proc on ${hostname()}`);
  const bootId = readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim();
  const leader = { pid: own.session, startTime: own.startTime + 1, bootId };
  t.false(membersOf([leader]).get(own.session)?.includes(own.pid) ?? false);
});
