// The chaos run's own disks: whatever state they are put back to is one that a disk can have.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import anyTest, { type ExecutionContext } from "ava";
import { Disk } from "../chaos/disk.ts";
import { chaosMissing } from "../chaos/sandbox.ts";
import { tempDir } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const test = chaosMissing() === null ? anyTest.serial : anyTest.serial.skip;

/** A disk that a process in a mount namespace of its own has mounted, too, as an exec task does; unmounted after the test. */
async function heldDisk(t: ExecutionContext): Promise<{ readonly disk: Disk; readonly images: string }> {
  const folder = tempDir(t, "chaos-disk");
  const disk = new Disk(folder, "machine", 64 << 20);
  const holder = spawn("unshare", ["--mount", "sh", "-c", "echo ready; exec sleep 600"], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  const gone = once(holder, "exit");
  await once(holder.stdout, "data");
  t.teardown(async () => {
    holder.kill("SIGKILL");
    await gone;
    await until("the disk to be unmounted", () => {
      while (disk.isMounted()) execFileSync("umount", [disk.path], { stdio: "ignore" });
      return true;
    });
  });
  return { disk, images: join(folder, "machine.images") };
}

/** Folders of small files, rewritten each time, so that blocks of folders are reused. */
function fill(disk: Disk, round: number): void {
  for (let folder = 0; folder < 8; folder += 1) {
    const path = join(disk.path, `${round}-${folder}`);
    mkdirSync(path);
    for (let file = 0; file < 64; file += 1) writeFileSync(join(path, String(file)), `${round} ${file}\n`.repeat(200));
  }
}

test("a disk that is put back has the files that it had when it was kept, while a process still holds it", async (t) => {
  t.timeout(patient(120_000));
  const { disk, images } = await heldDisk(t);
  fill(disk, 1);
  disk.keep();
  t.notThrows(
    () => execFileSync("e2fsck", ["-fn", join(images, "kept")], { stdio: "pipe" }),
    "the kept state has no errors, and no journal to replay",
  );
  fill(disk, 2);
  await disk.putBack();
  t.deepEqual(
    readdirSync(disk.path).filter((name) => name.startsWith("2-")),
    [],
  );
  for (let file = 0; file < 64; file += 1)
    t.is(readFileSync(join(disk.path, "1-3", String(file)), "utf8"), `1 ${file}\n`.repeat(200));
  fill(disk, 3);
  disk.cutPower();
  await disk.powerOn();
  appendFileSync(join(disk.path, "after"), "x");
  t.true(existsSync(join(disk.path, "1-3")));
});

test("a disk that is wiped is empty, while a process still holds it", async (t) => {
  t.timeout(patient(120_000));
  const { disk } = await heldDisk(t);
  fill(disk, 1);
  await disk.wipe();
  t.deepEqual(readdirSync(disk.path), ["lost+found"]);
  fill(disk, 2);
  t.is(readFileSync(join(disk.path, "2-0", "5"), "utf8"), "2 5\n".repeat(200));
});
