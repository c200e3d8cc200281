/** The system's own programs that do what Node cannot: change the root, the user, the network, mounts, make any
 *  call to the kernel, open terminals and unpack archives. */
import { accessSync, constants, statSync } from "node:fs";
import { isAbsolute, join } from "node:path";

/** Looked at after the driver's own PATH, since an agent's may leave out what root's programs are in. */
const systemPath = "/usr/sbin:/usr/bin:/sbin:/bin";

export function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** The first of a search path's folders that has an executable of this name; `root` is put before each. */
export function findOnPath(name: string, searchPath: string, root = ""): string | null {
  for (const folder of searchPath.split(":")) {
    if (isAbsolute(folder) && isExecutable(join(root, folder, name))) return join(folder, name);
  }
  return null;
}

export interface Tools {
  /** Of coreutils: also changes the user. Each is an absolute path, or null where the machine lacks it. */
  readonly chroot: string | null;
  /** Of util-linux. */
  readonly nsenter: string | null;
  readonly unshare: string | null;
  readonly mount: string | null;
  readonly umount: string | null;
  readonly script: string | null;
  /** Of coreutils. */
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
