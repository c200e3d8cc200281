// The single-file command where there is neither Node nor npm nor a checkout: in a root of its own with a shell, a nats-server
// and the libraries that executables of this machine need.
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { tempDir } from "../fixtures/muster.ts";
import { currentNats } from "../fixtures/nats-server.ts";
import { endProcessesOf } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";

const top = fileURLToPath(new URL("../../", import.meta.url));
const control = "/data/manager/control.sock";

function isThere(name: string): boolean {
  return spawnSync("sh", ["-c", `command -v ${name}`]).status === 0;
}

function found(name: string): string {
  return execFileSync("sh", ["-c", `command -v ${name}`], { encoding: "utf8" }).trim();
}

/** Paths of the shared libraries, and of the loader. */
function librariesOf(binary: string): readonly string[] {
  const listed = execFileSync("sh", ["-c", `ldd "${binary}" 2>/dev/null || true`], { encoding: "utf8" });
  return Array.from(listed.matchAll(/(\/\S+) \(0x/g), ([, path]) => path as string);
}

function put(root: string, from: string, to: string): void {
  mkdirSync(dirname(join(root, to)), { recursive: true });
  copyFileSync(from, join(root, to));
}

function newRoot(t: ExecutionContext, muster: string): string {
  const root = tempDir(t, "root");
  for (const folder of ["data", "dev", "proc", "tmp", "root"]) mkdirSync(join(root, folder));
  put(root, muster, "usr/bin/muster");
  put(root, currentNats, "usr/bin/nats-server");
  put(root, found("busybox"), "bin/busybox");
  for (const name of execFileSync("busybox", ["--list"], { encoding: "utf8" })
    .trim()
    .split("\n")
    .filter((each) => each !== "busybox"))
    symlinkSync("busybox", join(root, "bin", name));
  for (const path of [muster, currentNats].flatMap(librariesOf)) put(root, path, path);
  mkdirSync(join(root, "etc"));
  writeFileSync(join(root, "etc/passwd"), "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n");
  writeFileSync(join(root, "etc/group"), "root:x:0:\nnogroup:x:65534:\n");
  return root;
}

const missing = process.getuid?.() !== 0 ? "needs root" : !isThere("busybox") ? "needs busybox" : null;

(missing === null ? test.serial : test.serial.skip)(
  "a single file runs a cluster, its drivers, its charts and its rehearsals without Node",
  async (t) => {
    const out = tempDir(t, "package");
    execFileSync(process.execPath, [join(top, "tools/package/main.ts"), "single-file", "--out", out], {
      stdio: "pipe",
    });
    const root = newRoot(t, join(out, "muster"));
    rmSync(join(out, "muster"));
    t.false(existsSync(join(root, "usr/bin/node")));

    const muster = (...args: readonly string[]): string =>
      execFileSync("chroot", [root, "/usr/bin/muster", "--host", control, ...args], {
        encoding: "utf8",
        env: { HOME: "/root", PATH: "/usr/sbin:/usr/bin:/bin" },
        stdio: ["ignore", "pipe", "pipe"],
      });
    const { version } = JSON.parse(readFileSync(join(top, "package.json"), "utf8")) as { readonly version: string };
    const { status, stdout } = spawnSync("git", ["-C", top, "rev-parse", "--short=12", "HEAD"], { encoding: "utf8" });
    const from = status === 0 ? stdout.trim() : "a package of an unknown commit";
    t.true(muster("version").startsWith(`muster ${version} (${from}`), muster("version"));

    // The programs that it starts have flags of their own for Node, such as a rehearsal's nursery, which replace those of the executable.
    const collections = (flags: string): number => {
      const args = [root, "/usr/bin/muster", `--node-options=${flags} --trace-gc`, "simulate", "--list"];
      return (
        execFileSync("chroot", args, { encoding: "utf8", env: { PATH: "/usr/sbin:/usr/bin:/bin" } }).match(
          /: Scavenge /g,
        )?.length ?? 0
      );
    };
    t.true(collections("") > 0);
    t.is(collections("--min-semi-space-size=64 --max-semi-space-size=64"), 0);

    // A driver by the name that it is started by: it refuses to run without its host.
    symlinkSync("muster", join(root, "usr/bin/muster-driver-docker"));
    const driver = spawnSync("chroot", [root, "/usr/bin/muster-driver-docker"], { encoding: "utf8" });
    t.regex(driver.stderr + driver.stdout, /This is docker, a task driver/);
    t.not(driver.status, 0);

    // Its own loopback, mounts and processes, which end with it.
    const inside =
      `ip link set lo up; mount -t proc proc ${root}/proc; mount --rbind /dev ${root}/dev; ` +
      `exec chroot ${root} /usr/bin/muster up --data-dir /data --listen 127.0.0.1:2377 --allow-root --task-user root ` +
      // Isolation needs perl, which is not here; test/cluster/task-users.test.ts and others test it.
      `--driver-config 'exec={"isolation":"none"}'`;
    const up = spawn("unshare", ["--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", inside], {
      env: { HOME: "/root", PATH: process.env["PATH"] },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let said = "";
    for (const stream of [up.stdout, up.stderr]) stream.on("data", (bytes: Buffer) => (said += bytes.toString()));
    const ended = new Promise((resolve) => up.once("exit", resolve));
    t.teardown(async () => {
      up.kill("SIGKILL");
      await ended;
      await endProcessesOf(root);
    });
    await until("a manager and an agent", () => {
      if (up.exitCode !== null) throw new Error(said);
      return existsSync(join(root, control)) && muster("node", "ls").match(/ Ready /g)?.length === 2;
    });

    muster(
      "service",
      "create",
      "--detach",
      "--name",
      "clock",
      "--driver",
      "exec",
      "--",
      "/bin/sh",
      "-c",
      "while date; do sleep 1; done",
    );
    await until("a running task", () => / Running \S+ seconds? ago/.test(muster("service", "ps", "clock")));
    await until("its output", () => / UTC \d{4}/.test(muster("service", "logs", "clock")));
    t.regex(muster("inspect", "session"), /serving/);

    t.is(
      muster("charts", "--quiet"),
      execFileSync(process.execPath, [join(top, "cli/main.ts"), "charts", "--quiet"], { encoding: "utf8" }),
    );
    const report = muster(
      "simulate",
      "--scenario",
      "flapping-node",
      "--seeds",
      "1",
      "-j",
      "1",
      "--html",
      "/tmp/report.html",
    );
    t.regex(report, /flapping-node/);
    t.true(readFileSync(join(root, "tmp/report.html"), "utf8").includes("<script"));
  },
);
