// Isolation of exec tasks from their node: real processes in namespaces of their own.
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, readlinkSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { capabilitiesOf } from "../../drivers/exec/capabilities.ts";
import { configDefault } from "../../drivers/exec/fields.ts";
import { lacking } from "../../drivers/exec/isolation.ts";
import { seccompProgram } from "../../drivers/exec/seccomp.ts";
import { SealingPlan } from "../../drivers/exec/sealing.ts";
import { findTools } from "../../linux/system-tools.ts";
import {
  DNSConfig,
  Mount,
  NetworkIsolationSpec,
  NetworkIsolationSpec_NetworkIsolationMode as Mode,
  NomadDriverConfig,
} from "../../proto/gen/nomad.ts";
import { execLab, sh, terminal } from "../fixtures/exec-lab.ts";
import { until } from "../fixtures/until.ts";

const asRoot = process.getuid?.() === 0 ? test : test.skip;
const status = (text: string, key: string): string => new RegExp(`^${key}:[ \\t]*(.*)$`, "m").exec(text)?.[1] ?? "";
const look = "cat /proc/self/status; readlink /proc/self/ns/ipc /proc/self/ns/pid; ls -d /proc/[0-9]* | wc -l";

asRoot("a task has its own processes and System V objects, few capabilities, and no way to get more", async (t) => {
  const { start, stdout } = execLab(t);
  const run = await start(
    sh(`${look}; unshare -U true || echo refused; mount -t tmpfs x /mnt || echo refused; sleep 60`),
  );
  await until("its output", () => stdout().split("refused").length === 3);
  const text = stdout();
  t.is(status(text, "CapEff"), status(text, "CapBnd"));
  const bounding = BigInt(`0x${status(text, "CapBnd")}`);
  const expected = capabilitiesOf({ allow: null, add: [], drop: [], isRoot: true });
  t.is(expected.bounding.length, 13);
  t.is(bounding.toString(2).replaceAll("0", "").length, 13);
  t.is(status(text, "NoNewPrivs"), "1");
  t.is(status(text, "Seccomp"), "2");
  for (const kind of ["ipc", "pid"]) t.false(text.includes(readlinkSync(`/proc/self/ns/${kind}`)), kind);
  // The task, its shell and the counting commands: none of the node's.
  t.true(Number(text.split("\n").find((line) => /^\d+$/.test(line))) < 10, text);

  const inside = terminal(run, ["sh", "-c", `${look}; kill -0 ${process.pid} 2>/dev/null || echo unseen`]);
  t.is((await inside.session.exited).exitCode, 0);
  const later = inside.text().replaceAll("\r", "");
  for (const key of ["CapEff", "CapBnd", "NoNewPrivs", "Seccomp"]) t.is(status(later, key), status(text, key), key);
  for (const name of ["ipc", "pid"]) {
    const own = new RegExp(`${name}:\\[\\d+\\]`).exec(text)?.[0] ?? "";
    t.true(own !== "" && later.includes(own), name);
  }
  t.regex(later, /unseen/);
  await run.stop("SIGTERM", 20_000);
  t.deepEqual(await run.exited, { exitCode: 143, signal: 15, oomKilled: false });
});

asRoot(
  "no process that a task has started outlives it, and another process of the driver finds and ends it",
  async (t) => {
    const { folder, plugin, request, start, stdout } = execLab(t);
    const asked = request({});
    const first = await start(sh("setsid sleep 987654 & echo ready; sleep 60"));
    await until("its output", () => stdout() === "ready\n");
    const found = plugin().recover(asked, JSON.parse(JSON.stringify(first.state)));
    const session = terminal(found, ["sh", "-c", "echo again"]);
    t.is((await session.session.exited).exitCode, 0);
    t.is(session.text(), "again\r\n");
    await found.stop("SIGTERM", 20_000);
    t.is((await found.exited).exitCode, 143);
    await first.exited;
    t.false(readFileSync("/proc/self/mounts", "utf8").includes(folder));
  },
);

asRoot("a command run later is in the task's network, even if a node path names it", async (t) => {
  const { start } = execLab(t);
  const holder = spawn("unshare", ["--net", "sleep", "60"], { stdio: "ignore" });
  t.teardown(() => holder.kill("SIGKILL"));
  await until("its network", () => readFileSync(`/proc/${holder.pid}/comm`, "utf8") === "sleep\n");
  const path = `/proc/${holder.pid}/ns/net`;
  const networkIsolationSpec = NetworkIsolationSpec.create({ mode: Mode.GROUP, path });
  for (const filesystem of ["host", "private"]) {
    const run = await start({ ...sh("sleep 60"), filesystem }, { networkIsolationSpec, user: "nobody" });
    const inside = terminal(run, ["readlink", "/proc/self/ns/net"]);
    t.is((await inside.session.exited).exitCode, 0);
    t.is(inside.text().trim(), readlinkSync(path));
    t.is(readlinkSync(`/proc/${run.state.main.pid}/ns/net`), readlinkSync(path));
  }
});

asRoot("a command in a killed task leaves nothing that would keep the task from ending", async (t) => {
  const { start } = execLab(t);
  const run = await start(sh("sleep 60"));
  const killed = terminal(run, ["sh", "-c", "trap '' TERM HUP; echo up; sleep 61"]);
  await until("its output", () => killed.text().includes("up"));
  killed.session.kill();
  t.is((await killed.session.exited).exitCode, 137);
  await run.stop("SIGTERM", 20_000);
  t.is((await run.exited).exitCode, 143);
});

asRoot(
  "another user has no capabilities except those that the task adds, none of which would make it root",
  async (t) => {
    const { start, stdout } = execLab(t);
    await (
      await start({ ...sh(look), cap_add: ["net_bind_service"] }, { user: "nobody" })
    ).exited;
    t.is(status(stdout(), "CapEff"), "0000000000000400");
    t.is(status(stdout(), "CapAmb"), "0000000000000400");
    t.regex(status(stdout(), "Uid"), /^65534\s+65534/);
    t.is(status(stdout(), "Groups").trim(), "");
    await t.throwsAsync(start({ cap_add: ["SETUID"] }, { user: "nobody" }), { message: /cap_add: .*SETUID/ });
    await t.throwsAsync(start({ cap_add: ["SYS_ADMIN"] }), { message: /does not allow SYS_ADMIN/ });
    await t.throwsAsync(start({ cap_add: ["FLY"] }), { message: /unknown capability "FLY"/ });
  },
);

test("capabilities are Nomad's default list within what the operator allows", (t) => {
  const none = { allow: null, add: [], drop: [], isRoot: true };
  t.deepEqual(capabilitiesOf({ ...none, drop: ["all"], add: ["CAP_CHOWN"] }).own, ["CHOWN"]);
  t.deepEqual(capabilitiesOf({ ...none, allow: ["all"], add: ["SYS_ADMIN"], drop: ["all"] }).bounding, ["SYS_ADMIN"]);
  t.deepEqual(capabilitiesOf({ ...none, allow: ["CHOWN", "NET_RAW"] }).bounding, ["CHOWN"]);
  t.deepEqual(capabilitiesOf({ ...none, allow: ["SETUID"], add: ["SETUID"], isRoot: false }).own, ["SETUID"]);
  t.false(capabilitiesOf({ ...none, drop: ["mknod"] }).bounding.includes("MKNOD"));
});

asRoot(
  "a task has its own files: the node's programs read-only, its directories and volumes, and nothing else",
  async (t) => {
    const { folder, home, start, stdout } = execLab(t);
    for (const name of ["data", "seed", "secret"]) mkdirSync(join(folder, name));
    mkdirSync(join(home, "tmp"));
    writeFileSync(join(folder, "seed", "file"), "seeded");
    writeFileSync(join(folder, "secret", "key"), "of the task");
    writeFileSync(join(folder, "beside"), "of the node");
    symlinkSync(join(folder, "secret"), join(home, "secrets"));
    const mounts = [
      Mount.create({ taskPath: "volumes/data", hostPath: join(folder, "data") }),
      Mount.create({ taskPath: "volumes/seed", hostPath: join(folder, "seed"), readonly: true }),
    ];
    const script = [
      "pwd; cat volumes/seed/file secrets/key; echo",
      "echo kept >volumes/data/file; echo local >local/file; echo temporary >/tmp/file",
      `cat ${folder}/beside && echo open: beside`,
      `for path in /root/. /home/. /etc/x /x volumes/seed/x /proc/sys/kernel/x; do`,
      '  cat "$path" 2>/dev/null || (: >"$path") 2>/dev/null && echo "open: $path"; done',
      "ls / /dev; id -u; cat /etc/resolv.conf; echo end; sleep 60",
    ].join("\n");
    const dns = DNSConfig.create({ servers: ["192.0.2.1"] });
    const run = await start({ ...sh(script), filesystem: "private" }, { mounts, dns });
    await until("its output", () => stdout().includes("end\n"));
    const text = stdout();
    t.true(text.startsWith(`${home}\nseededof the task\n`), text);
    t.notRegex(text, /open:/);
    t.regex(text, /nameserver 192\.0\.2\.1\nend/);
    t.is(readFileSync(join(folder, "data", "file"), "utf8"), "kept\n");
    t.is(readFileSync(join(home, "tmp", "file"), "utf8"), "temporary\n");
    t.regex(text, /full\n(.*\n)*null\n(.*\n)*zero\n/);

    const inside = terminal(run, ["sh", "-c", `pwd; cat volumes/seed/file local/file; cat ${folder}/beside; ls /root`]);
    await inside.session.exited;
    t.regex(inside.text(), new RegExp(`^${home}\r\nseededlocal\r\n.*beside: No such file.*\r\n.*/root`));
    t.false(readFileSync("/proc/self/mounts", "utf8").includes(folder));
    await t.throwsAsync(start({ command: join(folder, "beside"), filesystem: "private" }), {
      message: /not an executable/,
    });
    await t.throwsAsync(start({ command: process.execPath, filesystem: "private" }), {
      message: /is not visible in a private filesystem/,
    });
  },
);

asRoot("an impossible setting fails the start with a sentence, and nothing runs", async (t) => {
  const { folder, start } = execLab(t);
  const mounts = [Mount.create({ taskPath: "volumes/gone", hostPath: join(folder, "gone") })];
  await t.throwsAsync(start({ ...sh("echo ran"), filesystem: "private" }, { mounts }), {
    message: /cannot show the task .*gone: No such file/,
  });
  t.is(readFileSync(join(folder, "stdout"), "utf8"), "");
});

asRoot("unveil shows a task only the paths that it names, with their rights", async (t) => {
  const { folder, start, stdout } = execLab(t);
  for (const name of ["read", "write", "hidden"]) mkdirSync(join(folder, name), { mode: 0o777 });
  for (const name of ["read", "write", "hidden"]) writeFileSync(join(folder, name, "file"), name);
  const script = [
    `for name in read write hidden; do cat ${folder}/$name/file 2>/dev/null || echo no $name; done; echo`,
    `for name in read write hidden; do (: >${folder}/$name/new) 2>/dev/null && echo made $name; done`,
    "echo own >local/file && cat local/file",
  ].join("\n");
  const rules = [`r:${folder}/read`, `rwc:${folder}/write`];
  await (
    await start({ ...sh(script), unveil: rules })
  ).exited;
  t.is(stdout(), "readwriteno hidden\n\nmade write\nown\n");
  await t.throwsAsync(start({ unveil: ["read"] }), { message: /expected PERMS:PATH/ });
  await t.throwsAsync(start({ unveil: ["r:/nowhere/at/all"] }), { message: /\/nowhere\/at\/all does not exist/ });
});

test("a task weakens its isolation only as far as its operator allows", async (t) => {
  const strict = execLab(t);
  const wrong = [
    [{ seccomp: "unconfined" }, /allow_unconfined/],
    [{ no_new_privileges: false }, /allow_unconfined/],
    [{ seccomp: "loose" }, /expected default or unconfined/],
    [{ pid_mode: "shared" }, /invalid pid_mode "shared": expected private or host/],
    [{ filesystem: "chroot" }, /invalid filesystem "chroot": expected private or host/],
    [{ filesystem: "private", chroot: "/tmp" }, /cannot have both/],
    [{ chroot: "/tmp", unveil: ["r:/tmp"] }, /cannot have unveil/],
  ] as const;
  for (const [config, message] of wrong) await t.throwsAsync(strict.start(config), { message }, JSON.stringify(config));
  for (const config of [
    { isolation: "some" },
    { allow_caps: ["FLY"] },
    { default_pid_mode: "x" },
    { root_paths: ["usr"] },
  ])
    t.throws(() => strict.plugin().configure({ ...configDefault, ...config }, NomadDriverConfig.create()));
  const loose = execLab(t, { allow_unconfined: true });
  const free = { seccomp: "unconfined", no_new_privileges: false, pid_mode: "host", ipc_mode: "host" };
  await (
    await loose.start({ ...sh(look), ...free })
  ).exited;
  t.is(status(loose.stdout(), "Seccomp"), "0");
  t.is(status(loose.stdout(), "NoNewPrivs"), "0");
  t.true(loose.stdout().includes(readlinkSync("/proc/self/ns/pid")));
});

test("a node that lacks a requirement of isolation reports it and is unhealthy", (t) => {
  const tools = findTools(process.env["PATH"] ?? "");
  t.is(lacking(configDefault, tools), null);
  t.regex(lacking(configDefault, { ...tools, perl: null }) ?? "", /perl is not installed.*isolation = "none"/);
  t.is(lacking({ ...configDefault, isolation: "none" }, { ...tools, perl: null, unshare: null }), null);
  t.throws(() => new SealingPlan("mips"), { message: /cannot isolate tasks on mips/ });
});

/** The seccomp program's answer to a call, evaluated as the kernel does. */
function judged(program: Uint8Array, audit: number, call: number, argument = 0): string {
  const view = Buffer.from(program);
  const data = new Map([
    [0, call],
    [4, audit],
    [16, argument],
  ]);
  let accumulator = 0;
  for (let at = 0; at < view.length; at += 8) {
    const [code, operand] = [view.readUInt16LE(at), view.readUInt32LE(at + 4)];
    const jump = (is: boolean): void => void (at += 8 * view.readUInt8(at + (is ? 2 : 3)));
    if (code === 0x20) accumulator = data.get(operand) as number;
    else if (code === 0x15) jump(accumulator === operand);
    else if (code === 0x35) jump(accumulator >= operand);
    else if (code === 0x45) jump((accumulator & operand) !== 0);
    else if (code === 0x06)
      return operand === 0x8000_0000 ? "kill" : operand === 0x7fff_0000 ? "allow" : `errno ${operand - 0x5_0000}`;
    else throw new Error(`instruction ${code}`);
  }
  throw new Error("the program has no end");
}

test("the seccomp profile rejects namespaces, mounts and modules, allows one architecture, and no newer calls", (t) => {
  const [x64, arm64] = [0xc000_003e, 0xc000_00b7];
  for (const [name, audit, clone, calls] of [
    ["x64", x64, 56, [165, 272, 308, 175, 246, 321, 250, 425, 429]],
    ["arm64", arm64, 220, [40, 97, 268, 105, 104, 280, 219, 425, 429]],
  ] as const) {
    const program = seccompProgram(name, []);
    for (const call of calls) t.is(judged(program, audit, call), "errno 1", `${name} ${call}`);
    t.is(judged(program, audit, clone, 0x10_0000), "allow", "a thread");
    t.is(judged(program, audit, clone, 0x1000_0000), "errno 1", "a namespace of users");
    t.is(judged(program, audit, 435), "errno 38", "clone3");
    t.is(judged(program, audit, 466), "allow");
    t.is(judged(program, audit, 467), "errno 38", "a newer call");
    t.is(judged(program, audit, 0x4000_0000), "errno 38", "x32");
    t.is(judged(program, audit === x64 ? 0x4000_0003 : x64, 1), "kill");
    const admin = seccompProgram(name, ["SYS_ADMIN"]);
    t.is(judged(admin, audit, calls[0]), "allow");
    t.is(judged(admin, audit, clone, 0x1000_0000), "allow");
    t.is(judged(admin, audit, calls[3]), "errno 1", "modules");
  }
});
