import test from "ava";
import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { configDefault } from "../../drivers/exec/fields.ts";
import { ExecPlugin } from "../../drivers/exec/plugin.ts";
import { ownFolder } from "../../linux/own-folder.ts";

function place(t: { teardown: (end: () => void) => void }): string {
  const folder = mkdtempSync(join(tmpdir(), "own-folder-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

test("a new or existing folder of this user becomes private", (t) => {
  const folder = place(t);
  t.is(statSync(ownFolder(join(folder, "a/b"))).mode & 0o777, 0o700);
  mkdirSync(join(folder, "open"));
  chmodSync(join(folder, "open"), 0o777);
  t.is(statSync(ownFolder(join(folder, "open"))).mode & 0o777, 0o700);
});

test("a folder of another user, a link to one and a file are rejected", (t) => {
  const folder = place(t);
  mkdirSync(join(folder, "mine"));
  symlinkSync(join(folder, "mine"), join(folder, "link"));
  writeFileSync(join(folder, "file"), "");
  t.throws(() => ownFolder(join(folder, "link")), { message: /is not a directory/ });
  t.throws(() => ownFolder(join(folder, "file")));
  if (process.getuid?.() !== 0) return; // only root can change a folder's owner
  mkdirSync(join(folder, "theirs"));
  chownSync(join(folder, "theirs"), 65_534, 65_534);
  t.throws(() => ownFolder(join(folder, "theirs")), { message: /belongs to user 65534/ });
});

test("a driver keeps its state in no folder that another user created", (t) => {
  if (process.getuid?.() !== 0) return; // only root can change a folder's owner
  const folder = place(t);
  chownSync(folder, 65_534, 65_534);
  const exec = new ExecPlugin();
  exec.configure({ ...configDefault, state_dir: folder }, null);
  t.throws(() => exec.fingerprint(), { message: /belongs to user 65534/ });
});
