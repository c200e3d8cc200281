/**
 * The root of a task whose driver wants a chroot (Nomad's exec and java): paths of the node at the same places below the
 * task's directory, Nomad's `chroot_env` by default.
 *
 * Nomad links each file, which takes seconds and megabytes of directories for each task, and lets a task that runs as root
 * write to the node's files. Here each is an overlay without an upper layer: there at once, and read-only from its first moment,
 * so that whatever removes the task's directory cannot reach the node's files.
 */
import { execFile } from "node:child_process";
import { mkdir, readFile, realpath } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Nomad's defaults; what a node lacks is left out. */
export const chrootPaths: readonly string[] = [
  "/bin",
  "/etc",
  "/lib",
  "/lib32",
  "/lib64",
  "/run/resolvconf",
  "/run/systemd/resolve",
  "/sbin",
  "/usr",
];

/** A second call is harmless. Rejects with a sentence. `empty`: an empty directory; an overlay wants two layers. */
export async function placeChroot(root: string, empty: string): Promise<void> {
  if (process.getuid?.() !== 0) throw new Error("the driver wants a chroot, which an agent makes only as root");
  await mkdir(empty, { recursive: true });
  const there = new Set(await mountsBelow(root));
  for (const path of chrootPaths) {
    const source = await realpath(path).catch(() => null);
    const target = join(root, path);
    if (source === null || there.has(target)) continue;
    await mkdir(target, { recursive: true });
    await run("mount", ["-t", "overlay", "-o", `ro,lowerdir=${source}:${empty}`, "muster-chroot", target]);
  }
}

/** Rejects when one cannot be taken away. */
export async function unplaceChroot(root: string): Promise<void> {
  for (const path of await mountsBelow(root)) await run("umount", [path]);
}

/** Mount points below a folder, the deepest first. */
async function mountsBelow(folder: string): Promise<readonly string[]> {
  const at = await realpath(folder).catch(() => null);
  if (at === null) return [];
  const text = await readFile("/proc/self/mountinfo", "utf8");
  return text
    .split("\n")
    .map((line) =>
      (line.split(" ")[4] ?? "").replaceAll(/\\([0-7]{3})/g, (_, octal: string) =>
        String.fromCodePoint(Number.parseInt(octal, 8)),
      ),
    )
    .filter((path) => path.startsWith(`${at}/`))
    .toSorted()
    .toReversed();
}
