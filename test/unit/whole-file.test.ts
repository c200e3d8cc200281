// Files are replaced whole or not at all, also if the disk accepts only a part of them.
import { execFileSync } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { replaceFile, replaceFileSync, writeAllSync } from "../../runtime/system/whole-file.ts";
import { FileDisk } from "../../runtime/system/file-disk.ts";

const fill = fileURLToPath(new URL("../fixtures/fill-data-dir.ts", import.meta.url));
const asRoot = process.getuid?.() === 0 ? test : test.skip;

function folder(t: ExecutionContext): string {
  const directory = mkdtempSync(join(tmpdir(), "muster-whole-"));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

test("a disk that accepts only a part of a file is reported, and the old file stays", (t) => {
  const directory = folder(t);
  writeFileSync(join(directory, "keys"), "old");
  // The kernel accepts the first 4,096 bytes (8 blocks of 512) and rejects the rest, as a nearly full disk does.
  const said = execFileSync("sh", ["-c", 'ulimit -f 8; exec "$@"', "sh", process.execPath, fill, directory, "50000"], {
    encoding: "utf8",
  });
  t.is(said, "EFBIG");
  t.is(readFileSync(join(directory, "keys"), "utf8"), "old");
  t.deepEqual(
    readdirSync(directory),
    ["format", "keys"],
    "the unfinished copy is removed: a full disk needs its space",
  );
});

asRoot("on a nearly full file system the old file stays, and a write that fits succeeds later", (t) => {
  const directory = folder(t);
  // Its own mount namespace, which ends with the shell.
  const script = [
    'set -e; mount -t tmpfs -o size=64k,mode=700 tmpfs "$1"',
    'printf old > "$1/keys"; dd if=/dev/zero of="$1/ballast" bs=4096 count=12 status=none',
    '"$2" "$3" "$1" 40000; echo; head -c 9 "$1/keys"; echo; ls "$1"',
    'rm "$1/ballast"; "$2" "$3" "$1" 40000; echo; wc -c < "$1/keys"',
  ].join("\n");
  const said = execFileSync("unshare", ["-m", "sh", "-c", script, "sh", directory, process.execPath, fill], {
    encoding: "utf8",
  });
  t.deepEqual(said.trim().split("\n"), ["ENOSPC", "old", "ballast", "format", "keys", "written", "40000"]);
});

test("the rest of a partial write is written by the next call", (t) => {
  const path = join(folder(t), "file");
  const file = openSync(path, "w");
  const { writeSync } = makeShort(3);
  writeAllSync(file, new TextEncoder().encode("0123456789"), writeSync);
  closeSync(file);
  t.is(readFileSync(path, "utf8"), "0123456789");
});

test("a write call that accepts nothing ends the writing with an error", (t) => {
  const file = openSync(join(folder(t), "file"), "w");
  t.teardown(() => closeSync(file));
  t.throws(() => writeAllSync(file, new Uint8Array(5), () => 0), { message: /0 of 5 bytes/ });
});

test("replacing keeps the requested mode, whatever an unfinished copy had", async (t) => {
  const directory = folder(t);
  const path = join(directory, "file");
  writeFileSync(`${path}.next`, "half of an earlier life", { mode: 0o644 });
  replaceFileSync(path, "secret");
  t.is(statSync(path).mode & 0o777, 0o600);
  await replaceFile(path, new TextEncoder().encode("readable"), { mode: 0o644 });
  t.is(statSync(path).mode & 0o777, 0o644);
  t.is(readFileSync(path, "utf8"), "readable");
  t.deepEqual(readdirSync(directory), ["file"]);
});

test("when a record cannot be saved whole only the old one remains", async (t) => {
  const directory = folder(t);
  const disk = await FileDisk.open(directory);
  await disk.save("task.t1", new TextEncoder().encode("old"));
  const program = [
    `import { FileDisk } from ${JSON.stringify(fileURLToPath(new URL("../../runtime/system/file-disk.ts", import.meta.url)))};`,
    `const disk = await FileDisk.open(${JSON.stringify(directory)});`,
    `await disk.save("task.t1", new Uint8Array(50_000)).then(() => console.log("written"), (e) => console.log(e.code));`,
    `console.log((await import("node:fs")).readdirSync(${JSON.stringify(directory)}).join());`,
  ].join("\n");
  const said = execFileSync(
    "sh",
    ["-c", 'ulimit -f 8; exec "$@"', "sh", process.execPath, "--input-type=module", "-e", program],
    { encoding: "utf8" },
  );
  t.is(said, "EFBIG\ntask.t1\n");
  t.is(new TextDecoder().decode((await disk.load("task.t1")) ?? undefined), "old");
});

/** Like the system call, which may accept less than it is given. */
function makeShort(most: number): {
  writeSync: (file: number, data: Uint8Array, at: number, length: number) => number;
} {
  return {
    writeSync: (file, data, at, length) => {
      const some = data.subarray(at, at + Math.min(most, length));
      writeFileSync(file, some);
      return some.length;
    },
  };
}
