// The Debian package in a root with nothing but Debian's essential packages: installed, run, upgraded, removed and purged.
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { appendFileSync, existsSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { debianRoot, noDebianRoot } from "../fixtures/debian-root.ts";
import { tempDir } from "../fixtures/muster.ts";
import { endProcessesOf } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";

const top = fileURLToPath(new URL("../../", import.meta.url));
const has = (name: string): boolean => spawnSync("sh", ["-c", `command -v ${name}`]).status === 0;

/** The values of a key in a unit, as systemd reads them. */
function valuesIn(unit: string, key: string): readonly string[] {
  return Array.from(unit.matchAll(new RegExp(`^${key}=(.*)$`, "gm")), ([, value]) => value as string);
}

(noDebianRoot() === null ? test.serial : test.serial.skip)(
  "the Debian package installs, runs by its units, upgrades and goes, and the data stays",
  async (t) => {
    const out = tempDir(t, "package");
    const packed = execFileSync(process.execPath, [join(top, "tools/package/main.ts"), "debian", "--out", out], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    });
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
    install(packed.trim());

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
    const units = Object.fromEntries(
      ["manager", "agent"].map((name) => [
        name,
        readFileSync(join(root, `usr/lib/systemd/system/muster-${name}.service`), "utf8"),
      ]),
    );
    if (has("systemd-analyze")) {
      for (const name of ["manager", "agent"]) {
        // Here, only the programs of this machine exist.
        const local = (units[name] ?? "")
          .replaceAll("/usr/bin/muster", "/bin/true")
          .replace(/^Documentation=.*\n/m, "");
        const file = join(tempDir(t, "unit"), `muster-${name}.service`);
        writeFileSync(file, local);
        const verified = spawnSync("systemd-analyze", ["verify", file], { encoding: "utf8" });
        t.deepEqual(
          [verified.status, verified.stderr.replaceAll(/^.*(?:docker\.service|\/run\/).*\n/gm, "")],
          [0, ""],
          name,
        );
      }
    }

    // The units' own command lines, environments and users, with their own loopback, mounts and processes.
    const start = (name: string): string => {
      const unit = units[name] ?? "";
      const [command = ""] = valuesIn(unit, "ExecStart");
      const [identity = "root"] = valuesIn(unit, "User");
      const environment = valuesIn(unit, "Environment").join(" ");
      return `setpriv --reuid ${identity} --regid ${identity} --clear-groups env ${environment} CREDENTIALS_DIRECTORY=/run/credentials/${name} ${command}`;
    };
    for (const name of ["manager", "agent"]) mkdirSync(join(root, "run/credentials", name), { recursive: true });
    const [, uid = "", gid = ""] = user ?? [];
    const state = join(root, "var/lib/muster/manager");
    mkdirSync(state, { recursive: true });
    execFileSync("chown", [`${uid}:${gid}`, state]);
    appendFileSync(join(root, "etc/muster/manager.yaml"), "advertise: 127.0.0.1\n");
    appendFileSync(join(root, "etc/muster/agent.yaml"), "join: 127.0.0.1:2377\n");
    writeFileSync(
      join(root, "tmp/run.sh"),
      `set -e
${start("manager")} &
until muster token worker > /run/credentials/agent/muster_token 2>/dev/null; do sleep 0.2; done
exec ${start("agent")}
`,
    );
    const inside =
      `ip link set lo up; mount -t proc proc ${root}/proc; mount --rbind /dev ${root}/dev; ` +
      `exec chroot ${root} /bin/sh /tmp/run.sh`;
    const running = spawn("unshare", ["--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", inside], {
      env,
      stdio: ["ignore", "pipe", "pipe"],
    });
    let log = "";
    for (const stream of [running.stdout, running.stderr])
      stream.on("data", (bytes: Buffer) => (log += bytes.toString()));
    const ended = new Promise((resolve) => running.once("exit", resolve));
    const stop = async (): Promise<void> => {
      running.kill("SIGKILL");
      await ended;
      await endProcessesOf(root);
    };
    t.teardown(stop);
    await until("a manager and an agent", () => {
      if (running.exitCode !== null) throw new Error(log);
      // Finds the manager of the unit by itself.
      const listed = spawnSync("chroot", [root, "muster", "node", "ls"], { encoding: "utf8", env });
      return listed.stdout.match(/ Ready /g)?.length === 2;
    }).catch((error: Error) => {
      throw new Error(`${error.message}\n${log}`);
    });
    t.regex(log, /"server":"2\./, "the package has a nats-server");
    await stop();

    const data = readdirSync(join(root, "var/lib/muster/manager")).toSorted();
    t.true(data.length > 3);
    const newer = join(out, "newer");
    execFileSync("dpkg-deb", ["--raw-extract", packed.trim(), newer]);
    const control = readFileSync(join(newer, "DEBIAN/control"), "utf8");
    writeFileSync(join(newer, "DEBIAN/control"), control.replace(/^Version: .*$/m, "$&+newer"));
    appendFileSync(join(newer, "usr/share/bash-completion/completions/muster"), "# newer\n");
    execFileSync("dpkg-deb", ["-Znone", "--build", newer, join(out, "newer.deb")], { stdio: "pipe" });
    install(join(out, "newer.deb"));
    t.regex(inRoot("dpkg-query", "--status", "muster"), /^Version: .*\+newer$/m);
    t.regex(readFileSync(join(root, "etc/muster/manager.yaml"), "utf8"), /advertise: 127\.0\.0\.1/);
    t.deepEqual(readdirSync(join(root, "var/lib/muster/manager")).toSorted(), data);

    writeFileSync(join(root, "etc/muster/credentials/manager/token"), "x");
    inRoot("dpkg", "--remove", "muster");
    t.false(existsSync(join(root, "usr/bin/muster")));
    t.regex(readFileSync(join(root, "etc/muster/manager.yaml"), "utf8"), /advertise: 127\.0\.0\.1/);
    t.true(existsSync(join(root, "etc/muster/credentials/manager/token")));
    t.deepEqual(readdirSync(join(root, "var/lib/muster/manager")).toSorted(), data);
    t.regex(said("dpkg", "--purge", "muster"), /the data in \/var\/lib\/muster is kept/);
    t.false(existsSync(join(root, "etc/muster")));
    t.deepEqual(readdirSync(join(root, "var/lib/muster/manager")).toSorted(), data);
  },
);
