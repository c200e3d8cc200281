/**
 * A resolv.conf of a task's own: a mount namespace in which it lies over the node's, or its root's. The file is in memory, and
 * goes with the task's last process. A task that asks for none has no such namespace.
 *
 * What the node's own resolvers would answer a task that never reads that file is hidden from it: systemd-resolved by its
 * socket, and nscd.
 *
 * A program of the node that puts another file in the place of /etc/resolv.conf itself takes the mount away: the kernel lets
 * nobody's mount keep a file's name. Where that file is systemd-resolved's, its whole directory is covered, which no change of
 * a file in it undoes.
 */
import { closeSync, constants, lstatSync, mkdirSync, openSync, readlinkSync, statSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import type { DNSConfig } from "../../proto/gen/nomad.ts";
import { nodeResolver, resolvConf, resolvConfPath } from "../../node/task-network/resolv-conf.ts";
import { shell } from "./run-file.ts";
import type { Tools } from "../../node/system-tools.ts";

/** As the kernel does. */
const linksMax = 40;
const resolvedFolder = "/run/systemd/resolve";
const hiddenFolders = [resolvedFolder, "/run/nscd"];

/**
 * $1 mount and $2 umount, $3 a directory, $4 what the file says, then pairs: a directory that is covered and the file's name
 * in it (empty: none), or the file that is covered and nothing; up to `--`.
 */
const cover = `set -e
mount=$1 umount=$2 place=$3 text=$4
shift 4
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then
    "$mount" -t tmpfs -o mode=755,size=64k,nosuid,nodev muster-resolver "$1"
    [ -z "$2" ] || printf %s "$text" >"$1/$2"
  else
    "$mount" -t tmpfs -o mode=755,size=64k,nosuid,nodev muster-resolver "$place"
    printf %s "$text" >"$place/resolv.conf"
    "$mount" --bind "$place/resolv.conf" "$1"
    "$umount" "$place"
  fi
  shift 2
done
shift
exec "$@"`;

export interface ResolverAsked {
  readonly dns: DNSConfig;
  /** The task's root; empty: the node's. */
  readonly root: string;
  /** Whether the task is in a network of its own. */
  readonly isApart: boolean;
  /** A directory, over which a mount lies for a moment in the task's namespace. */
  readonly place: string;
}

/** Where a path leads inside a root, whatever links there are; the last part need not exist. */
export function insideRoot(root: string, path: string): string {
  let rest = path.split("/");
  let at = "/";
  for (let links = 0; rest.length > 0;) {
    const [step, ...others] = rest as [string, ...string[]];
    const next = normalize(join(at, step));
    const isLink = lstatSync(join(root, next), { throwIfNoEntry: false })?.isSymbolicLink() === true;
    rest = others;
    if (!isLink) {
      at = next;
      continue;
    }
    if ((links += 1) > linksMax) throw new Error(`${path} is a link without an end`);
    const target = readlinkSync(join(root, next));
    if (target.startsWith("/")) at = "/";
    rest = [...target.split("/"), ...rest];
  }
  return join(root, at);
}

/** The file that is to be covered; in a root of the task's own it is made where it is missing. */
function coveredFile(root: string): string {
  const path = insideRoot(root === "" ? "/" : root, resolvConfPath);
  if (statSync(path, { throwIfNoEntry: false })?.isFile() === true) return path;
  if (root === "") throw new Error(`there is no ${resolvConfPath} on this node in whose place the task's could be`);
  mkdirSync(dirname(path), { recursive: true });
  closeSync(openSync(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW, 0o644));
  return path;
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

/** Programs before a command by which it has the resolver; throws with why it cannot. */
export function ownResolver({ dns, isApart, place, root }: ResolverAsked, tools: Tools): readonly string[] {
  const { mount, umount, unshare } = tools;
  if (process.getuid?.() !== 0)
    throw new Error("cannot give the task name servers of its own: the driver does not run as root on this node");
  if (mount === null || umount === null || unshare === null)
    throw new Error("there is no mount or unshare (util-linux) on this node, by which a task has its own name servers");
  const file = coveredFile(root);
  const isResolved = dirname(file) === resolvedFolder;
  const hidden = root === "" ? hiddenFolders.filter(isFolder) : [];
  const covers = [
    ...hidden.flatMap((folder) => [folder, folder === dirname(file) ? file.slice(folder.length + 1) : ""]),
    ...(isResolved && root === "" ? [] : [file, ""]),
  ];
  const text = resolvConf(dns, nodeResolver(isApart));
  const own = [unshare, "--mount", "--propagation", "slave", "--"];
  return [...own, shell, "-c", cover, "sh", mount, umount, place, text, ...covers, "--"];
}

/** Programs before a later command by which it sees what the task sees. `directory`: where it begins. */
export function inMountsOf(pid: number, directory: string): { readonly flag: string; readonly cd: readonly string[] } {
  // Whoever joins a namespace of mounts stands in its root.
  return { flag: `--mount=/proc/${pid}/ns/mnt`, cd: [shell, "-c", 'cd -- "$0" && exec "$@"', directory] };
}
