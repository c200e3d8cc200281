/**
 * System programs for what Node cannot do: change the root, the user, the network or mounts, make arbitrary system calls, open
 * terminals and unpack archives.
 */
import { accessSync, constants, statSync } from "node:fs";
import { isAbsolute, join } from "node:path";

/** Searched after the driver's own PATH, since an agent's PATH may lack root's folders. */
const systemPath = "/usr/sbin:/usr/bin:/sbin:/bin";

export function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** The first folder of a search path that has an executable of this name; `root` is prefixed to each. */
export function findOnPath(name: string, searchPath: string, root = ""): string | null {
  for (const folder of searchPath.split(":")) {
    if (isAbsolute(folder) && isExecutable(join(root, folder, name))) return join(folder, name);
  }
  return null;
}

export interface Tools {
  /** From coreutils: also changes the user. Each is an absolute path, or null if the machine lacks it. */
  readonly chroot: string | null;
  /** From util-linux. */
  readonly nsenter: string | null;
  readonly unshare: string | null;
  readonly mount: string | null;
  readonly umount: string | null;
  readonly script: string | null;
  /** From coreutils. */
  readonly stty: string | null;
  readonly env: string | null;
  readonly perl: string | null;
  readonly tar: string | null;
  readonly unzip: string | null;
}

export function findTools(searchPath: string): Tools {
  const find = (name: string): string | null => findOnPath(name, `${searchPath}:${systemPath}`);
  return {
    chroot: find("chroot"),
    nsenter: find("nsenter"),
    unshare: find("unshare"),
    mount: find("mount"),
    umount: find("umount"),
    script: find("script"),
    stty: find("stty"),
    env: find("env"),
    perl: find("perl"),
    tar: find("tar"),
    unzip: find("unzip"),
  };
}
