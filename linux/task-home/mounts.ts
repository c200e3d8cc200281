/**
 * Tasks' mounts other than cluster volumes: paths of the node, local volumes (directories), and memory.
 *
 *   <directory>/../local-volumes/<name>    a volume; survives its tasks, and only an operator removes it
 *   <directory>/<task id>/mounts/<n>       memory, and volumes without a name: removed with the task
 */
import { execFile } from "node:child_process";
import { chmod, mkdir, readdir, realpath, stat } from "node:fs/promises";
import { dirname, join, sep } from "node:path";
import { promisify } from "node:util";
import type { PlannedMount } from "../../actors/agent/ports.ts";

const run = promisify(execFile);

interface MountPlaces {
  /** Parent of the tasks' directories. */
  readonly directory: string;
  /** The task's own. */
  readonly home: string;
}

/** The path of each on the node, in order; may be called again. Rejects with a sentence about the one that failed. */
export async function placeMounts(mounts: readonly PlannedMount[], places: MountPlaces): Promise<readonly string[]> {
  const paths: string[] = [];
  for (const [at, mount] of mounts.entries()) paths.push(await place(mount, at, places));
  return paths;
}

/** Unmounts the memory, whose contents are lost. */
export async function unplaceMounts(home: string): Promise<void> {
  const own = join(home, "mounts");
  for (const name of await readdir(own).catch(() => [])) {
    const path = join(own, name);
    if (await isMounted(path)) await run("umount", [path]);
  }
}

async function place({ source, target }: PlannedMount, at: number, { directory, home }: MountPlaces): Promise<string> {
  switch (source.kind) {
    case "path": {
      if (source.isMade) await mkdir(source.path, { recursive: true });
      if (!(await exists(source.path)))
        throw new Error(`cannot mount ${source.path} at ${target}: it does not exist on this node`);
      return source.path;
    }
    case "volume": {
      const isNamed = source.name !== "";
      const root = isNamed ? join(dirname(directory), "local-volumes", source.name) : join(home, "mounts", String(at));
      if (!(await exists(root))) {
        await mkdir(root, { recursive: true });
        await chmod(root, 0o777);
      }
      return source.subpath === "" ? root : partOf(root, source.subpath);
    }
    case "memory": {
      const path = join(home, "mounts", String(at));
      await mkdir(path, { recursive: true });
      if (await isMounted(path)) return path;
      if (process.getuid?.() !== 0) throw new Error(`cannot mount memory at ${target}: the agent does not run as root`);
      const size = source.bytes === 0 ? "" : `,size=${source.bytes}`;
      await run("mount", ["-t", "tmpfs", "-o", `nosuid,nodev,mode=${source.mode.toString(8)}${size}`, "tmpfs", path]);
      return path;
    }
  }
}

/** Never through a link that a task has created in the volume, which might lead out of it. */
async function partOf(root: string, subpath: string): Promise<string> {
  const path = await realpath(join(root, subpath)).catch(() => null);
  const top = await realpath(root);
  if (path === null || (path !== top && !path.startsWith(top + sep)))
    throw new Error(`the volume has no subpath ${subpath}`);
  return path;
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}

async function isMounted(path: string): Promise<boolean> {
  const [own, above] = await Promise.all([stat(path), stat(dirname(path))]);
  return own.dev !== above.dev;
}
