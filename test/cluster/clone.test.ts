// A fresh clone after `npm ci`: generated code is not in the repository, and the first command creates it. The set-up before.
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { tempDir } from "../fixtures/muster.ts";

const top = fileURLToPath(new URL("../../", import.meta.url));
const listed = spawnSync("git", ["-C", top, "ls-files", "-z"], { maxBuffer: 64 * 1024 * 1024 });

(listed.status === 0 ? test.serial : test.serial.skip)("bin/muster works in a clone right after npm ci", (t) => {
  const clone = tempDir(t, "clone");
  const there = listed.stdout
    .toString()
    .split("\0")
    .filter((path) => path !== "" && existsSync(join(top, path)));
  const files = execFileSync("tar", ["-c", "-C", top, "--null", "-T", "-"], {
    input: there.join("\0"),
    maxBuffer: 512 * 1024 * 1024,
  });
  execFileSync("tar", ["-x", "-C", clone], { input: files });
  symlinkSync(join(top, "node_modules"), join(clone, "node_modules"));
  const env = { PATH: "/usr/bin:/bin", HOME: tempDir(t, "home") };
  const ran = spawnSync(join(clone, "bin/muster"), ["charts", "--quiet"], { encoding: "utf8", env });
  t.is(ran.status, 0, ran.stderr);
  t.regex(ran.stdout, /^session$/m);
  const again = spawnSync(join(clone, "bin/muster"), ["version"], { encoding: "utf8", env });
  t.is(again.stderr, "", "only the first command generates anything");
  t.regex(again.stdout, /^muster \d/);
});

test("the set-up names a Node that is too old, before it installs anything", (t) => {
  const asOld = `for (const [name, value] of Object.entries({ version: "v18.20.0", versions: { ...process.versions, node: "18.20.0" } }))
    Object.defineProperty(process, name, { value });`;
  const old = ["--import", `data:text/javascript,${encodeURIComponent(asOld)}`];
  const ran = spawnSync(process.execPath, [...old, join(top, "tools/setup.mjs")], { encoding: "utf8" });
  t.is(ran.status, 1);
  t.is(
    ran.stderr,
    "setup: the Node on PATH is v18.20.0, but the set-up needs version 20 or newer: install one, or put a newer one first on PATH\n",
  );
});
