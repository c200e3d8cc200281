// The exec driver as a plugin: real processes, terminals and cgroups, as far as this machine and user have them.
import { execFileSync, spawn } from "node:child_process";
import {
  closeSync,
  constants,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  readdirSync,
  readSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import test from "ava";
import {
  joinFiles,
  makeCgroup,
  membersOfCgroup,
  oomKills,
  probeCgroups,
  removeCgroup,
  type TaskCgroup,
  usageOf,
} from "../../drivers/exec/cgroups.ts";
import type { ExecConfig } from "../../drivers/exec/fields.ts";
import { parseRunFacts, signalNamed, signalNumberOf, taskArguments } from "../../drivers/exec/run-file.ts";
import type { TaskExit } from "../../edges/plugin/server/index.ts";
import {
  DNSConfig,
  LinuxResources,
  Mount,
  NetworkIsolationSpec,
  NetworkIsolationSpec_NetworkIsolationMode as Isolation,
  Resources,
  type TaskConfig,
} from "../../proto/gen/nomad.ts";
import { execLab as lab, sh, terminal } from "../fixtures/exec-lab.ts";
import { until } from "../fixtures/until.ts";

const isRoot = process.getuid?.() === 0;
const asRoot = isRoot ? test : test.skip;
test("a task has its arguments, its environment, its directory and its output", async (t) => {
  const { start, stdout, home } = lab(t);
  const run = await start(sh(`printf '%s|%s|%s\\n' "$NAME" "$(pwd)" "$1"`), { env: { NAME: "a b" } });
  t.deepEqual(await run.exited, { exitCode: 0, signal: 0, oomKilled: false } satisfies TaskExit);
  t.is(stdout(), `a b|${home}|\n`);
});

test("variables with names that shells do not accept reach a task, and commands in it", async (t) => {
  const { start, stdout } = lab(t);
  const run = await start({ command: "sh", args: ["-c", "env; sleep 60"] }, { env: { "a.b": "x y", C: "z" } });
  await until("its output", () => stdout().includes("\nC=z\n") || stdout().startsWith("C=z\n"));
  // A shell drops them again for its children: here it prints its own environment.
  t.true(readFileSync(`/proc/${run.state.main.pid}/environ`, "utf8").split("\0").includes("a.b=x y"));
  const inside = terminal(run, ["env"]);
  await inside.session.exited;
  t.true(inside.text().split("\r\n").includes("a.b=x y"));
});

test("a command in the task's own directory takes precedence over its PATH", async (t) => {
  const { start, home, stdout } = lab(t);
  writeFileSync(join(home, "local", "sleep"), "#!/bin/sh\necho mine\n", { mode: 0o755 });
  await (
    await start({ command: "sleep" })
  ).exited;
  t.is(stdout(), "mine\n");
});

test("an invalid task is reported before anything starts", async (t) => {
  const { start, folder } = lab(t);
  const link = join(folder, "link");
  symlinkSync(join(folder, "stdout"), link);
  const cases: readonly [Partial<ExecConfig>, Partial<TaskConfig>, RegExp][] = [
    [{ command: "no-such-command" }, {}, /cannot find no-such-command in the task's PATH/],
    [{ command: "/etc/passwd" }, {}, /is not an executable file/],
    [{}, { user: "no-such-user" }, /there is no user no-such-user on this node/],
    [{ work_dir: "nowhere" }, {}, /directory .*nowhere does not exist/],
    [{ chroot: "nowhere" }, {}, /directory .*nowhere does not exist/],
    [{ oom_score_adj: 5000 }, {}, /oom_score_adj/],
    [{}, { stdoutPath: link }, /ELOOP/],
    [{}, { stdoutPath: join(folder, "absent") }, /ENOENT/],
    [{}, { env: { A: "\0" } }, /environment/],
    [{}, { mounts: [Mount.create({ hostPath: "/tmp", taskPath: "../up" })] }, /cannot mount a volume at/],
  ];
  for (const [config, task, message] of cases) await t.throwsAsync(start(config, task), { message });
});

test("exit codes and signals are reported separately", async (t) => {
  const { start } = lab(t);
  t.like(await (await start(sh("exit 3"))).exited, { exitCode: 3, signal: 0 });
  t.like(await (await start(sh("kill -USR1 $$"))).exited, { exitCode: 138, signal: 10 });
});

test("a signal reaches only the command", async (t) => {
  const { start, stdout } = lab(t);
  const run = await start(sh("trap 'echo heard; exit 4' USR1; sleep 30 & echo $!; wait"));
  await until("its trap is set", () => stdout() !== "");
  run.signal("USR1");
  t.is((await run.exited).exitCode, 4);
  t.is(stdout().split("\n")[1], "heard");
  // Its leftover processes ended with it.
  t.false(
    existsSync(`/proc/${stdout().split("\n")[0]}/cmdline`) &&
      readFileSync(`/proc/${stdout().split("\n")[0]}/cmdline`, "utf8").includes("sleep"),
  );
  t.throws(() => run.signal("NONSENSE"), { message: /unknown signal/ });
});

test("output waits in its FIFO while nobody reads it, and the task lives", async (t) => {
  const { start, folder } = lab(t);
  const fifo = join(folder, "fifo");
  execFileSync("mkfifo", [fifo]);
  const written = join(folder, "written");
  const run = await start(sh(`echo one; sleep 0.2; echo two; : >${written}; sleep 30`), { stdoutPath: fifo });
  await until("both lines are in the FIFO", () => existsSync(written));
  const reader = openSync(fifo, constants.O_RDONLY | constants.O_NONBLOCK);
  const bytes = Buffer.alloc(100);
  t.is(bytes.toString("utf8", 0, readSync(reader, bytes)), "one\ntwo\n");
  closeSync(reader);
  await run.stop("", 5_000);
  t.is((await run.exited).signal, 15);
});

test("another process of the driver recovers a task with its exit, and rejects an invalid state", async (t) => {
  const { start, plugin, request } = lab(t);
  const run = await start(sh("sleep 0.3; exit 9"));
  const state: unknown = JSON.parse(JSON.stringify(run.state));
  const found = plugin().recover(request({}), state);
  t.is((await found.exited).exitCode, 9);
  // Also if it has already exited.
  t.is((await plugin().recover(request({}), state).exited).exitCode, 9);
  run.destroy();
  for (const bad of [null, {}, { ...(state as object), main: { pid: 1 } }])
    t.throws(() => plugin().recover(request({}), bad), { message: /not created by this driver/ });
});

test("X1: a start whose answer was lost finds the task that it started", async (t) => {
  const { plugin, request, start } = lab(t);
  const wanted = request(sh("sleep 30"));
  const first = await plugin().start(wanted);
  const second = await plugin().start(wanted);
  t.deepEqual(second.state.main, first.state.main);
  await second.stop("SIGTERM", 5_000);
  t.is((await first.exited).signal, 15);
  // Also if it has exited meanwhile.
  const third = await plugin().start(wanted);
  t.is((await third.exited).signal, 15);
  first.destroy();
  await (
    await start({})
  ).exited;
});

test("a task starts although its driver was killed during the start", async (t) => {
  const { folder } = lab(t);
  const [fifo, runFile] = [join(folder, "fifo"), join(folder, "run")];
  execFileSync("mkfifo", [fifo]);
  const reader = openSync(fifo, constants.O_RDWR | constants.O_NONBLOCK);
  const pipe = openSync(fifo, constants.O_WRONLY | constants.O_NONBLOCK);
  closeSync(reader);
  const run = openSync(runFile, "w");
  const [stdout, stderr] = ["stdout", "stderr"].map((name) => openSync(join(folder, name), "w"));
  // The command itself is ended by a broken pipe like any other.
  const command = ["/bin/sh", "-c", "echo begun; kill -PIPE $$"];
  const child = spawn("/bin/sh", taskArguments([], command), { stdio: ["ignore", stdout, stderr, run, pipe] });
  await new Promise((resolve) => child.once("exit", resolve));
  t.is(readFileSync(join(folder, "stdout"), "utf8"), "begun\n");
  t.is(readFileSync(join(folder, "stderr"), "utf8"), "");
  t.is(parseRunFacts(readFileSync(runFile, "latin1")).exitCode, 141);
});

test("a terminal has the requested size, echoes, and ends with its command", async (t) => {
  const { start } = lab(t);
  const run = await start(sh("sleep 60"));
  const both = terminal(run, ["/bin/sh", "-c", "echo hello stdout; echo hello stderr >&2; exit 43"]);
  t.is((await both.session.exited).exitCode, 43);
  t.is(both.text(), "hello stdout\r\nhello stderr\r\n");

  const sized = terminal(run, [
    "/bin/sh",
    "-c",
    "stty size; read line; until [ \"$(stty size)\" = '100 132' ]; do sleep 0.05; done; stty size",
  ]);
  await until("its size", () => sized.text().includes("24 80"));
  sized.session.resize({ rows: 50, columns: 40 });
  sized.session.resize({ rows: 100, columns: 132 });
  sized.session.write(Buffer.from("it's \n"));
  t.is((await sized.session.exited).exitCode, 0);
  t.is(sized.text(), "24 80\r\nit's \r\n100 132\r\n");

  // A command left in the background does not delay the end.
  const background = terminal(run, ["/bin/sh", "-c", "sleep 20 & echo it\\'s; exit 0"]);
  t.is((await background.session.exited).exitCode, 0);
  t.is(background.text(), "it's\r\n");

  const killed = terminal(run, ["sleep", "61"]);
  await new Promise((resolve) => setTimeout(resolve, 200));
  killed.session.kill();
  t.not((await killed.session.exited).exitCode, 0);
});

test("closing the input of a command without a terminal ends it", async (t) => {
  const { start } = lab(t);
  const run = await start(sh("sleep 60"));
  const texts = { stdout: "", stderr: "" };
  const session = run.exec({
    command: ["/bin/sh", "-c", "cat; echo end >&2; exit 5"],
    terminal: null,
    output: (stream, bytes) => {
      texts[stream] += Buffer.from(bytes).toString("utf8");
      return true;
    },
    onDrain: () => {},
  });
  session.write(Buffer.from("in"));
  session.closeInput();
  t.is((await session.exited).exitCode, 5);
  t.deepEqual(texts, { stdout: "in", stderr: "end\n" });
});

test("a command whose output nobody reads waits", async (t) => {
  const { start } = lab(t);
  const run = await start(sh("sleep 60"));
  let taken = 0;
  let resume = (): void => {};
  const session = run.exec({
    command: ["/bin/sh", "-c", "head -c 3000000 /dev/zero"],
    terminal: null,
    output: (_stream, bytes) => {
      taken += bytes.length;
      return false;
    },
    onDrain: (listener) => (resume = listener),
  });
  await until("the first bytes", () => taken > 0);
  await new Promise((resolve) => setTimeout(resolve, 500));
  t.true(taken < 1_000_000, `${taken} bytes were read`);
  const timer = setInterval(() => resume(), 1);
  await session.exited;
  clearInterval(timer);
  t.is(taken, 3_000_000);
});

test("volumes are links in the task's directory", async (t) => {
  const { start, folder, home, stdout } = lab(t);
  mkdirSync(join(folder, "volume"));
  writeFileSync(join(folder, "volume", "file"), "content\n");
  const mounts = [Mount.create({ hostPath: join(folder, "volume"), taskPath: "/data/db" })];
  await (
    await start(sh("cat data/db/file"), { mounts })
  ).exited;
  // Another start finds its link.
  await (
    await start(sh("cat data/db/file"), { mounts })
  ).exited;
  t.is(stdout(), "content\ncontent\n");
  // A link created by the task leads nobody out of its directory.
  symlinkSync(folder, join(home, "way"));
  const outside = [Mount.create({ hostPath: "/tmp", taskPath: "/way/there" })];
  await t.throwsAsync(start(sh("true"), { mounts: outside }), { message: /way is not a directory/ });
  t.false(existsSync(join(folder, "there")));
});

/** CPU time of a process in milliseconds, from /proc/PID/stat: fields 14 and 15, in hundredths of a second. */
function cpuMsOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

test("statistics cover exactly the task's own processes", async (t) => {
  const { start } = lab(t);
  const run = await start(sh(`x=$(head -c 3000000 /dev/zero | tr '\\0' a); while :; do :; done`));
  const { pid } = run.state.main;
  await until("its memory", () => (run.stats().memoryRss ?? 0) > 2_000_000);
  run.stats();
  const [begunMs, begunCpuMs] = [performance.now(), cpuMsOf(pid)];
  // However much of a busy machine's processors it gets.
  await until("300 ms of CPU time", () => cpuMsOf(pid) - begunCpuMs >= 300);
  const { cpuPercent = 0 } = run.stats();
  const ownPercent = ((cpuMsOf(pid) - begunCpuMs) / (performance.now() - begunMs)) * 100;
  t.true(cpuPercent > ownPercent / 2 && cpuPercent < ownPercent * 2, `${cpuPercent} %, of its own ${ownPercent} %`);
});

asRoot("a task runs as the user that it names, and so do commands in it", async (t) => {
  const { start, stdout, folder, home } = lab(t);
  execFileSync("chmod", ["755", folder, join(folder, "alloc"), home]);
  const run = await start(sh("id -u; id -g; id -G; echo $HOME; sleep 60"), { user: "nobody" });
  await until("its output", () => stdout().split("\n").length > 4);
  const [uid, gid, groups] = stdout().split("\n");
  t.not(uid, "0");
  t.is(groups, gid);
  const inside = terminal(run, ["id", "-u"]);
  await inside.session.exited;
  t.is(inside.text(), `${uid}\r\n`);
});

const busybox = ["/bin/busybox", "/usr/bin/busybox"].find((path) => existsSync(path));
(isRoot && busybox !== undefined ? test : test.skip)("a task sees the root that it names", async (t) => {
  const { start, home, stdout } = lab(t);
  mkdirSync(join(home, "root", "bin"), { recursive: true });
  for (const name of ["sh", "sleep"]) copyFileSync(busybox as string, join(home, "root", "bin", name));
  const run = await start({ ...sh("pwd; echo /*; sleep 60"), chroot: "root" }, { env: { PATH: "/bin" } });
  await until("its output", () => stdout().split("\n").length > 2);
  t.is(stdout(), "/\n/bin\n");
  const inside = terminal(run, ["/bin/sh", "-c", "echo /*"]);
  t.is((await inside.session.exited).exitCode, 0);
  t.is(inside.text(), "/bin\r\n");
});

asRoot("a task joins the network that its host created for it", async (t) => {
  const { start, stdout } = lab(t);
  const holder = spawn("unshare", ["--net", "sleep", "60"], { stdio: "ignore" });
  t.teardown(() => holder.kill("SIGKILL"));
  await until("its network", () => readFileSync(`/proc/${holder.pid}/comm`, "utf8") === "sleep\n");
  const networkIsolationSpec = NetworkIsolationSpec.create({
    mode: Isolation.GROUP,
    path: `/proc/${holder.pid}/ns/net`,
  });
  await (
    await start(sh("tail -n +3 /proc/net/dev | wc -l"), { networkIsolationSpec })
  ).exited;
  t.is(stdout().trim(), "1", "only the loopback interface");
});

const dns = DNSConfig.create({ servers: ["192.0.2.1"], searches: ["x.test"], options: ["ndots:2"] });
const resolver = "nameserver 192.0.2.1\nsearch x.test\noptions ndots:2\n";

asRoot("a task's own name servers are in its resolv.conf, and the node and other tasks keep the node's", async (t) => {
  // Tasks without isolation, or they could not mount.
  const { start, stdout, home } = lab(t, { isolation: "none" });
  const own = readFileSync("/etc/resolv.conf", "utf8");
  mkdirSync(join(home, "place"));
  const run = await start(
    sh("cat /etc/resolv.conf; pwd; mount -t tmpfs mine place; touch place/seen; echo ready; sleep 60"),
    { dns, env: { "a.b": "x y" } },
  );
  await until("its output", () => stdout().endsWith("ready\n"));
  t.is(stdout(), `${resolver}${home}\nready\n`);
  t.true(readFileSync(`/proc/${run.state.main.pid}/environ`, "utf8").split("\0").includes("a.b=x y"));
  // Commands in the task see the same as the task: also its mounts, which the node does not see.
  const inside = terminal(run, ["sh", "-c", "cat /etc/resolv.conf; ls place; pwd"]);
  await inside.session.exited;
  t.is(inside.text().replaceAll("\r", ""), `${resolver}seen\n${home}\n`);
  t.deepEqual(readdirSync(join(home, "place")), []);
  t.is(readFileSync("/etc/resolv.conf", "utf8"), own);
  const mounts = readFileSync(`/proc/${run.state.main.pid}/mounts`, "utf8");
  t.is(mounts.match(/^muster-resolver \/etc\/resolv.conf /gm)?.length, 1);
  t.notRegex(readFileSync("/proc/self/mounts", "utf8"), /muster-resolver/);
  const other = await start(sh("cat /etc/resolv.conf >&2; exit 3"));
  t.is((await other.exited).exitCode, 3);
  t.is(readFileSync(join(home, "..", "..", "stderr"), "utf8"), own);
});

asRoot("a task that sets only search domains keeps the node's name servers, as the user that it names", async (t) => {
  const { start, stdout, folder, home } = lab(t);
  execFileSync("chmod", ["755", folder, join(folder, "alloc"), home]);
  const searches = DNSConfig.create({ searches: ["y.test"] });
  const run = await start(sh("id -un; cat /etc/resolv.conf"), { dns: searches, user: "nobody" });
  t.is((await run.exited).exitCode, 0);
  const servers = readFileSync("/etc/resolv.conf", "utf8").match(/^nameserver .*$/gm) ?? [];
  t.deepEqual(stdout().trim().split("\n"), ["nobody", ...servers, "search y.test"]);
});

(isRoot && busybox !== undefined ? test : test.skip)(
  "a task's own root has its resolv.conf, through whatever link",
  async (t) => {
    const { start, home, stdout } = lab(t);
    const root = join(home, "root");
    mkdirSync(join(root, "bin"), { recursive: true });
    mkdirSync(join(root, "etc"));
    // As in images: it leads to nothing of the node.
    symlinkSync("/run/systemd/resolve/stub-resolv.conf", join(root, "etc", "resolv.conf"));
    for (const name of ["sh", "cat"]) copyFileSync(busybox as string, join(root, "bin", name));
    const config = { ...sh("cat /etc/resolv.conf"), chroot: "root" };
    t.is((await (await start(config, { env: { PATH: "/bin" }, dns })).exited).exitCode, 0);
    t.is(stdout(), resolver);
    t.is(readFileSync(join(root, "run/systemd/resolve/stub-resolv.conf"), "utf8"), "");
  },
);

const cgroups = isRoot ? probeCgroups() : { controllers: [] as readonly string[] };
const withLimits = cgroups.controllers.includes("memory") ? test : test.skip;

function memory(bytes: number): Partial<TaskConfig> {
  return { resources: Resources.create({ linuxResources: LinuxResources.create({ memoryLimitBytes: bytes }) }) };
}

withLimits("a task that exceeds its memory limit is killed, and reported so", async (t) => {
  const { start, told } = lab(t);
  const run = await start(sh("exec tail /dev/zero"), memory(16 * 1024 * 1024));
  t.deepEqual(await run.exited, { exitCode: 137, signal: 9, oomKilled: true });
  t.regex(told.join(), /exceeded its memory limit/);
});

withLimits("a process that left the task's session ends with the task, and its cgroup is removed", async (t) => {
  const { start, stdout } = lab(t, { default_pid_mode: "host" });
  const run = await start(sh("setsid sleep 50 & echo $!; sleep 0.3"), memory(64 * 1024 * 1024));
  t.is((await run.exited).exitCode, 0);
  const state = (): string => {
    try {
      return readFileSync(`/proc/${stdout().trim()}/stat`, "latin1").split(" ")[2] ?? "";
    } catch {
      return "gone";
    }
  };
  t.true(["gone", "Z"].includes(state()));
  for (const folder of run.state.cgroup?.own ?? []) t.false(existsSync(folder));
});

test("run files that nobody has read for long are removed when a driver starts", async (t) => {
  const { folder, plugin } = lab(t);
  mkdirSync(join(folder, "state"));
  for (const name of ["old", "new"]) writeFileSync(join(folder, "state", name), "exit 0\n");
  utimesSync(join(folder, "state", "old"), 0, 0);
  plugin().fingerprint();
  t.deepEqual(readdirSync(join(folder, "state")), ["new"]);
});

test("cgroups of version 2 are written and read in the kernel's format", (t) => {
  const { folder } = lab(t);
  const cgroups = {
    version: 2,
    controllers: ["memory", "cpu"],
    description: "",
    parents: { unified: folder },
  } as const;
  const limits = {
    memoryBytes: 1_048_576,
    memoryLowBytes: 4_096,
    cpuShares: 1_024,
    cpuQuotaUs: 50_000,
    cpuPeriodUs: 0,
    cpus: "0-1",
  };
  const made = makeCgroup(cgroups, "task", limits, "") as TaskCgroup;
  const file = (name: string): string => join(folder, "task", name);
  const written = ["memory.max", "memory.swap.max", "memory.low", "cpu.weight", "cpu.max", "cpuset.cpus"];
  t.deepEqual(
    written.map((name) => readFileSync(file(name), "utf8")),
    ["1048576", "0", "4096", "40", "50000 100000", "0-1"],
  );
  t.deepEqual(joinFiles(made), [file("cgroup.procs")]);
  writeFileSync(
    file("cpu.stat"),
    "usage_usec 5000\nuser_usec 3000\nsystem_usec 2000\nnr_throttled 2\nthrottled_usec 7\n",
  );
  writeFileSync(file("memory.stat"), "anon 100\nfile 200\nanon_thp 5\n");
  writeFileSync(file("memory.current"), "350\n");
  writeFileSync(file("memory.events"), "low 0\noom 1\noom_kill 3\noom_group_kill 0\n");
  writeFileSync(file("cgroup.procs"), "12\n345\n");
  t.deepEqual(usageOf(made), {
    cpuNs: 5_000_000,
    userNs: 3_000_000,
    throttledPeriods: 2,
    throttledNs: 7_000,
    rss: 100,
    cache: 200,
    usage: 350,
    swap: undefined,
  });
  t.is(oomKills(made), 3);
  t.deepEqual(membersOfCgroup(made), [12, 345]);
  // A group that a host has created for the task is used unchanged, and stays.
  const given = join(folder, "scope");
  mkdirSync(given);
  for (const name of ["cgroup.procs", "memory.max"]) writeFileSync(join(given, name), "");
  const scope = makeCgroup(cgroups, "other", limits, given) as TaskCgroup;
  t.deepEqual(scope, { version: 2, folders: { unified: given }, own: [] });
  t.is(readFileSync(join(given, "memory.max"), "utf8"), "1048576");
  // A path in a handle that is not below our parent is not removed.
  t.deepEqual(removeCgroup({ ...scope, own: [given] }), []);
  t.true(existsSync(given));
});

test("a truncated run file is read as far as it was written, and signals by name and number", (t) => {
  const stat = "12 (a b) S 1 12 12 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0";
  t.deepEqual(parseRunFacts(`leader ${stat}\nboot b\nmain ${stat}\nexi`), {
    leader: { pid: 12, startTime: 777, bootId: "b" },
    main: { pid: 12, startTime: 777, bootId: "b" },
    exitCode: null,
  });
  t.is(parseRunFacts(`leader ${stat}\nboot b\nexit 7\n`).exitCode, 7);
  t.deepEqual([signalNamed("term"), signalNamed("SIGHUP"), signalNamed("9")], ["SIGTERM", "SIGHUP", "SIGKILL"]);
  t.deepEqual([signalNumberOf(143), signalNumberOf(3), signalNumberOf(255)], [15, 0, 0]);
});
