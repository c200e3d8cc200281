// Records as files: whole or absent, in the order of the calls, and only for this user.
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { FileDisk } from "../../runtime/system/file-disk.ts";

function folder(t: ExecutionContext): string {
  const directory = mkdtempSync(join(tmpdir(), "muster-disk-"));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  return join(directory, "state");
}

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const text = (data: Uint8Array | null): string | null => (data === null ? null : new TextDecoder().decode(data));

test("a record survives into the next life, and nobody else can read it", async (t) => {
  const directory = folder(t);
  const disk = await FileDisk.open(directory);
  await disk.save("identity", bytes("secret"));
  t.is(text(await (await FileDisk.open(directory)).load("identity")), "secret");
  t.is(statSync(join(directory, "identity")).mode & 0o777, 0o600);
  t.is(statSync(directory).mode & 0o777, 0o700);
  t.is(await disk.load("absent"), null);
});

test("D3: the last of many changes to one name wins", async (t) => {
  const disk = await FileDisk.open(folder(t));
  await Promise.all([...Array(20).keys()].map((at) => disk.save("a", bytes(String(at)))));
  t.is(text(await disk.load("a")), "19");
  await Promise.all([disk.save("a", bytes("x")), disk.remove("a")]);
  t.is(await disk.load("a"), null);
});

test("D1: a file half written at a crash is neither listed nor kept", async (t) => {
  const directory = folder(t);
  await FileDisk.open(directory);
  writeFileSync(join(directory, ".tmp-task.t1"), "half");
  const disk = await FileDisk.open(directory);
  await disk.save("task.t2", bytes("whole"));
  t.deepEqual(await disk.list("task."), ["task.t2"]);
  t.deepEqual(readdirSync(directory), ["task.t2"]);
});

test("a name that would leave the directory is rejected", async (t) => {
  const disk = await FileDisk.open(folder(t));
  for (const name of ["../x", "a/b", "", ".tmp-a"]) t.throws(() => disk.save(name, bytes("")), { message: /D1/ }, name);
});
