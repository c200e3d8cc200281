// The version of a data dir's format: what this version does with none, with its own, and with a newer one.
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { UserError } from "../../lib/user-error.ts";
import { version } from "../../lib/version.ts";
import { cannotWrite, openDataDir } from "../../processes/data-dir.ts";
import { tempDir } from "../fixtures/muster.ts";

test("a data dir gets the number of its format, also one of an earlier version, and keeps it", (t) => {
  const path = tempDir(t, "data");
  const file = join(path, "format");
  openDataDir(path).release();
  t.is(readFileSync(file, "utf8"), `1 ${version}\n`);
  rmSync(file);
  writeFileSync(join(path, "node-id"), "n1\n");
  const folder = openDataDir(path);
  t.is(folder.read("node-id"), "n1\n");
  folder.release();
  writeFileSync(file, "1 0.0.9\n");
  openDataDir(path).release();
  t.is(readFileSync(file, "utf8"), `1 ${version}\n`, "the version that used it last");
});

test("D4: a data dir of a newer format is refused with both versions, and nothing in it changes", (t) => {
  const path = tempDir(t, "data");
  writeFileSync(join(path, "format"), "2 9.1.0\n");
  const error = t.throws(() => openDataDir(path), { instanceOf: UserError });
  t.is(
    error?.message,
    `the data dir ${path} has format 2, written by Muster 9.1.0, but this Muster ${version} knows format 1 at most: use that version or a newer one`,
  );
  t.deepEqual(readdirSync(path), ["format"]);
  t.is(readFileSync(join(path, "format"), "utf8"), "2 9.1.0\n");
});

test("a damaged number of the format is refused, and not taken for an old one", (t) => {
  const path = tempDir(t, "data");
  for (const text of ["", "1", "x 0.1.0\n", "-1 0.1.0\n", "1 0.1.0\n2"]) {
    writeFileSync(join(path, "format"), text);
    const error = t.throws(() => openDataDir(path), { instanceOf: UserError });
    t.regex(error?.message ?? "", /format is damaged: remove this file if/, text);
  }
});

test("a full disk is named as such, and no other data dir is recommended", (t) => {
  const full = Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });
  t.is(
    cannotWrite("/data", full).message,
    "the disk of the data dir /data is full (ENOSPC: no space left on device, write): free up space, and start it again",
  );
  const denied = Object.assign(new Error("EACCES: permission denied"), { code: "EACCES" });
  t.regex(cannotWrite("/data", denied).message, /choose another with --data-dir/);
});
