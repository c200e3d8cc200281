// The Debian package in a root with nothing but Debian's essential packages: installed, upgraded, removed and purged; with systemd as
// the first process of that root, also run.
import { execFile, execFileSync, spawnSync } from "node:child_process";
import {
  appendFileSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { gunzipSync } from "node:zlib";
import test, { type ExecutionContext } from "ava";
import { debianRoot, noDebianRoot } from "../fixtures/debian-root.ts";
import { bootSystemd, type SystemdMachine } from "../fixtures/systemd-machine.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const run = promisify(execFile);
const top = fileURLToPath(new URL("../../", import.meta.url));
const has = (name: string): boolean => spawnSync("sh", ["-c", `command -v ${name}`]).status === 0;

const out = mkdtempSync(join(tmpdir(), "muster-package-"));
test.after.always(() => rmSync(out, { recursive: true, force: true }));

/** The package, and one that differs from it by its version and by a file. */
const packages = once(async () => {
  const tool = join(top, "tools/package/main.ts");
  const { stdout } = await run(process.execPath, [tool, "debian", "--out", out]);
  const present = stdout.trim();
  const folder = join(out, "newer");
  execFileSync("dpkg-deb", ["--raw-extract", present, folder]);
  const control = readFileSync(join(folder, "DEBIAN/control"), "utf8");
  writeFileSync(join(folder, "DEBIAN/control"), control.replace(/^Version: .*$/m, "$&+newer"));
  appendFileSync(join(folder, "usr/share/bash-completion/completions/muster"), "# newer\n");
  const newer = join(out, "newer.deb");
  execFileSync("dpkg-deb", ["-Znone", "--build", folder, newer], { stdio: "pipe" });
  return { present, newer };
});

function once<Result>(make: () => Promise<Result>): () => Promise<Result> {
  let made: Promise<Result> | null = null;
  return () => (made ??= make());
}

(noDebianRoot() === null ? test.serial : test.serial.skip)(
  "the Debian package installs without systemd, upgrades and goes, and the data stays",
  async (t) => {
    t.timeout(patient(600_000));
    const { newer, present } = await packages();
    const root = debianRoot(t);
    t.false(["usr/bin/node", "usr/bin/npm", "usr/bin/perl5"].some((path) => existsSync(join(root, path))));
    const env = { HOME: "/root", PATH: "/usr/sbin:/usr/bin:/sbin:/bin", DEBIAN_FRONTEND: "noninteractive" };
    const inRoot = (...args: readonly string[]): string =>
      execFileSync("chroot", [root, ...args], { encoding: "utf8", env, stdio: ["ignore", "pipe", "pipe"] });
    const said = (...args: readonly string[]): string => {
      const { status, stderr, stdout } = spawnSync("chroot", [root, ...args], { encoding: "utf8", env });
      t.is(status, 0, stderr);
      return stdout + stderr;
    };
    const install = (file: string): void => {
      execFileSync("cp", [file, join(root, "tmp/muster.deb")]);
      inRoot("dpkg", "--install", "/tmp/muster.deb");
    };
    install(present);

    t.regex(inRoot("muster", "version"), /^muster \d+\.\d+\.\d+ \(/);
    const user = /^muster:[^:]*:(\d+):(\d+):/m.exec(readFileSync(join(root, "etc/passwd"), "utf8"));
    t.truthy(user, "the manager has a user of its own");
    t.is(statSync(join(root, "etc/muster/credentials/manager")).mode & 0o777, 0o700);
    t.regex(inRoot("muster", "config", "check", "/etc/muster/manager.yaml"), /valid for 'muster manager'/);
    t.regex(inRoot("muster", "config", "check", "/etc/muster/agent.yaml"), /'muster agent'/);
    t.true(readdirSync(join(root, "usr/share/man/man1")).length > 100);
    if (has("man")) {
      for (const page of ["muster", "muster-manager", "muster-service-create", "muster-node-ls"]) {
        const file = join(root, `usr/share/man/man1/${page}.1.gz`);
        const shown = spawnSync("man", ["--warnings", "-Tutf8", "-l", file], {
          encoding: "utf8",
          env: { PATH: process.env["PATH"], MANWIDTH: "120", MANPAGER: "cat", LC_ALL: "C.UTF-8" },
        });
        t.is(shown.stderr, "", page);
        t.regex(shown.stdout, /^MUSTER\S*\(1\)/m);
      }
    }
    appendFileSync(join(root, "etc/muster/manager.yaml"), "advertise: 127.0.0.1\n");
    const data = join(root, "var/lib/muster/manager/keys");
    execFileSync("install", ["-D", "/dev/null", data]);
    install(newer);
    t.regex(inRoot("dpkg-query", "--status", "muster"), /^Version: .*\+newer$/m);
    t.regex(readFileSync(join(root, "etc/muster/manager.yaml"), "utf8"), /advertise: 127\.0\.0\.1/);
    t.true(existsSync(data));

    writeFileSync(join(root, "etc/muster/credentials/manager/token"), "x");
    inRoot("dpkg", "--remove", "muster");
    t.false(existsSync(join(root, "usr/bin/muster")));
    t.regex(readFileSync(join(root, "etc/muster/manager.yaml"), "utf8"), /advertise: 127\.0\.0\.1/);
    t.true(existsSync(join(root, "etc/muster/credentials/manager/token")));
    t.true(existsSync(data));
    t.regex(said("dpkg", "--purge", "muster"), /the data in \/var\/lib\/muster is kept/);
    t.false(existsSync(join(root, "etc/muster")));
    t.true(existsSync(data));
  },
);

const units = ["muster-manager.service", "muster-agent.service"] as const;
const [managerUnit, agentUnit] = units;

/** A property of the unit, from systemd. */
const show = (machine: SystemdMachine, unit: string, property: string): Promise<string> =>
  machine.run("systemctl", "show", "--value", "--property", property, unit);

const processOf = (machine: SystemdMachine): Promise<readonly string[]> =>
  Promise.all(units.map((unit) => show(machine, unit, "MainPID")));

/** Waits until both units run a process that is none of these, and the node has a session. */
async function untilReplaced(machine: SystemdMachine, before: readonly string[]): Promise<void> {
  await until("both units to run again", async () => {
    const pids = await processOf(machine);
    const states = await Promise.all(units.map((unit) => show(machine, unit, "ActiveState")));
    return pids.every((pid) => !before.includes(pid)) && states.every((state) => state === "active");
  });
  await until("both nodes", async () => (await readyNodes(machine)) === 2);
}

const readyNodes = async (machine: SystemdMachine): Promise<number> =>
  (await machine.run("muster", "node", "ls")).match(/ Ready /g)?.length ?? 0;

/** Pids of the tasks' own processes: nothing else in the machine runs this program. */
const sleepers = async (machine: SystemdMachine): Promise<readonly string[]> => {
  const script =
    'for each in /proc/[0-9]*; do [ "$(readlink "$each/exe")" != /usr/bin/sleep ] || echo "${each#/proc/}"; done';
  return (await machine.run("sh", "-c", script)).split("\n").filter((line) => line !== "");
};

const twoTasks = (machine: SystemdMachine): Promise<readonly string[]> =>
  until("two tasks", async () => {
    const pids = await sleepers(machine);
    return pids.length === 2 && pids;
  });

const journal = (machine: SystemdMachine, unit: string): Promise<string> =>
  machine.run("journalctl", "--no-pager", "--output", "cat", "--unit", unit);

/** Twice: the second rotation compresses the file of the first one. */
async function rotateLogs(t: ExecutionContext, machine: SystemdMachine, root: string): Promise<void> {
  const files = ["manager", "agent"].map((unit) => join(root, `var/log/muster/${unit}/muster.log`));
  const hasLines = (file: string) => existsSync(file) && statSync(file).size > 0;
  for (const _turn of [1, 2]) {
    await until("lines in both logs", () => files.every(hasLines));
    t.is(await machine.run("logrotate", "--force", "/etc/logrotate.d/muster"), "");
  }
  await until("lines in both new logs", () => files.every(hasLines));
  for (const file of files) {
    t.regex(gunzipSync(readFileSync(`${file}.2.gz`)).toString(), /"msg":/);
    t.regex(readFileSync(`${file}.1`, "utf8"), /"msg":/);
  }
}

const parts = ["systemd", "iproute2", "logrotate"];

(noDebianRoot(...parts) === null ? test.serial : test.serial.skip)(
  "systemd runs the units of the Debian package: hardened, watched, restarted and upgraded under running tasks",
  async (t) => {
    t.timeout(patient(600_000));
    const { newer, present } = await packages();
    const root = debianRoot(t, ...parts);
    for (const [name, file] of Object.entries({ present, newer }))
      execFileSync("cp", [file, join(root, `${name}.deb`)]);
    let machine = await bootSystemd(t, root);
    const systemctl = (...words: readonly string[]) => machine.run("systemctl", ...words);
    const killMains = (signal: string) =>
      Promise.all(units.map((unit) => systemctl("kill", "--kill-who=main", `--signal=${signal}`, unit)));

    await machine.run("dpkg", "--install", "/present.deb");
    for (const unit of units) {
      t.is(await machine.run("systemd-analyze", "verify", "--man=no", unit), "");
      t.is(await show(machine, unit, "ActiveState"), "inactive", "an installation starts nothing");
      t.is(await show(machine, unit, "UnitFileState"), "disabled");
    }
    appendFileSync(join(root, "etc/muster/manager.yaml"), "advertise: 127.0.0.1\n");
    appendFileSync(join(root, "etc/muster/agent.yaml"), "join: 127.0.0.1:2377\n");

    await systemctl("enable", "--now", managerUnit);
    t.is(await readyNodes(machine), 1, "a started manager serves");
    t.regex(await systemctl("status", managerUnit), /Active: active \(running\)[^]*Status: "Running"/);
    const [manager = ""] = await processOf(machine);
    const ofManager = await machine.run("cat", `/proc/${manager}/status`, `/proc/${manager}/mountinfo`);
    t.regex(ofManager, /^CapBnd:\s0+$/m);
    t.regex(ofManager, /^NoNewPrivs:\s1$/m);
    t.regex(ofManager, /^Seccomp:\s2$/m);
    t.regex(ofManager, / \/ ro,/m, "the system is read-only");
    t.is(await machine.run("stat", "--format", "%U", `/proc/${manager}`), "muster");
    // Its exposure by systemd itself, in tenths: 17 when this was written.
    await t.notThrowsAsync(machine.run("systemd-analyze", "security", "--threshold=20", managerUnit));

    const token = join(root, "etc/muster/credentials/agent/token");
    const valid = await machine.run("muster", "token", "worker");
    writeFileSync(
      token,
      valid.replace(/.$/, (last) => (last === "0" ? "1" : "0")),
      { mode: 0o600 },
    );
    await t.throwsAsync(systemctl("enable", "--now", agentUnit), undefined, "an agent that cannot join does not start");
    t.regex(await journal(machine, agentUnit), /^muster: .*valid join token/m);
    writeFileSync(token, valid);
    await systemctl("restart", agentUnit);
    t.is(await readyNodes(machine), 2, "a started agent has joined");

    await machine.run(
      ..."muster service create --detach --name rest --replicas 2 --driver exec -- sleep 86400".split(" "),
    );
    const tasks = await twoTasks(machine);
    const goOn = async (message: string): Promise<boolean> => t.deepEqual(await sleepers(machine), tasks, message);

    let before = await processOf(machine);
    await killMains("KILL");
    await untilReplaced(machine, before);
    await goOn("tasks survive their agent and manager");

    await systemctl("reload", ...units);
    for (const unit of units) {
      const folder = join(root, `etc/systemd/system/${unit}.d`);
      execFileSync("install", ["-d", folder]);
      writeFileSync(join(folder, "watchdog.conf"), "[Service]\nWatchdogSec=5\n");
    }
    for (const unit of ["manager", "agent"])
      appendFileSync(join(root, `etc/muster/${unit}.yaml`), `log-file: /var/log/muster/${unit}/muster.log\n`);
    await systemctl("daemon-reload");
    await systemctl("restart", ...units);
    await rotateLogs(t, machine, root);
    before = await processOf(machine);
    await killMains("STOP");
    await untilReplaced(machine, before);
    for (const unit of units) t.regex(await journal(machine, unit), /^\S+: Watchdog timeout \(limit 5s\)!$/m);
    await goOn("tasks survive an agent that hangs");

    before = await processOf(machine);
    await machine.run("dpkg", "--install", "/newer.deb");
    for (const unit of units) t.is(await show(machine, unit, "ActiveState"), "active");
    t.false(
      (await processOf(machine)).some((pid) => before.includes(pid)),
      "an upgrade restarts what runs",
    );
    await untilReplaced(machine, before);
    await goOn("tasks survive an upgrade");

    await machine.cutPower();
    machine = await bootSystemd(t, root);
    await untilReplaced(machine, []);
    await twoTasks(machine);

    await systemctl("stop", ...units);
    for (const unit of units) t.is(await show(machine, unit, "Result"), "success", "a stop is clean");
    t.is(await show(machine, managerUnit, "ControlGroup"), "", "its nats-server has stopped");
    t.is((await sleepers(machine)).length, 2, "tasks survive a stopped agent");
    await t.notThrowsAsync(systemctl("start", agentUnit), "an agent that has joined before starts without managers");
    await systemctl("start", managerUnit);

    await machine.run("dpkg", "--remove", "muster");
    t.is(await systemctl("list-units", "--plain", "--no-legend", "muster-*.service"), "");
    t.is((await sleepers(machine)).length, 2, "tasks survive the removal");
    await machine.run("dpkg", "--purge", "muster");
    for (const unit of units) t.is(await show(machine, unit, "LoadState"), "not-found");
    t.false(existsSync(join(root, "etc/muster")));
    t.true(existsSync(join(root, "var/lib/muster/manager/keys")));
  },
);
