/**
 * The root of a task whose driver wants a chroot (Nomad's exec and java): paths of the node at the same places below the task's
 * directory, by default Nomad's `chroot_env`.
 *
 * Nomad links each file, which takes seconds and megabytes of directories per task, and lets a task that runs as root write to
 * the node's files. Here each path is an overlay without an upper layer: available immediately, and read-only from the start,
 * so that removing the task's directory cannot reach the node's files.
 */
import { execFile } from "node:child_process";
import { mkdir, readFile, realpath } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Nomad's defaults; paths that the node lacks are omitted. */
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

/** May be called again. Rejects with a sentence. `empty`: an empty directory, because an overlay needs two layers. */
export async function placeChroot(root: string, empty: string): Promise<void> {
  if (process.getuid?.() !== 0) throw new Error("the driver needs a chroot, but the agent does not run as root");
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

/** Rejects if one cannot be unmounted. */
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
