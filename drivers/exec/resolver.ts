/**
 * A separate resolv.conf for a task: mounted over the node's, or its root's, in a mount namespace. The file is in memory and
 * disappears with the task's last process. A task without DNS settings has no such namespace.
 *
 * The node's resolvers that answer without reading that file are hidden from the task: systemd-resolved, by its socket, and
 * nscd.
 *
 * When a program of the node replaces /etc/resolv.conf by another file, the mount goes away: in the kernel, a mount does not
 * protect a file's name. If the file is systemd-resolved's, its whole directory is covered, which survives the replacement of
 * files in it.
 */
import { closeSync, constants, lstatSync, mkdirSync, openSync, readlinkSync, statSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import type { DNSConfig } from "../../proto/gen/nomad.ts";
import { nodeResolver, resolvConf, resolvConfPath } from "../../linux/task-network/resolv-conf.ts";
import { shell } from "./run-file.ts";
import type { Tools } from "../../linux/system-tools.ts";
import { isFolder } from "./private-root.ts";

/** The kernel's limit. */
const linksMax = 40;
const resolvedFolder = "/run/systemd/resolve";
const hiddenFolders = [resolvedFolder, "/run/nscd"];

/**
 * $1 is mount, $2 umount, $3 a directory, $4 the file's content, followed by pairs: a directory to cover and the file's name in
 * it (empty: none), or a file to cover and an empty text; up to `--`.
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

interface ResolverAsked {
  readonly dns: DNSConfig;
  /** The task's root; empty: the node's. */
  readonly root: string;
  /** Whether the task has a separate network. */
  readonly isApart: boolean;
  /** A directory for a temporary mount in the task's namespace. */
  readonly place: string;
}

/** Resolves a path, including links, inside a root; the last component need not exist. */
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
    if ((links += 1) > linksMax) throw new Error(`too many levels of symbolic links: ${path}`);
    const target = readlinkSync(join(root, next));
    if (target.startsWith("/")) at = "/";
    rest = [...target.split("/"), ...rest];
  }
  return join(root, at);
}

/** The file to cover; created if missing, but only in a separate root. */
function coveredFile(root: string): string {
  const path = insideRoot(root === "" ? "/" : root, resolvConfPath);
  if (statSync(path, { throwIfNoEntry: false })?.isFile() === true) return path;
  if (root === "") throw new Error(`cannot set the task's name servers: ${resolvConfPath} does not exist on this node`);
  mkdirSync(dirname(path), { recursive: true });
  closeSync(openSync(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW, 0o644));
  return path;
}

/** The programs before a command that set up its resolver; throws if that is impossible. */
export function ownResolver({ dns, isApart, place, root }: ResolverAsked, tools: Tools): readonly string[] {
  const { mount, umount, unshare } = tools;
  if (process.getuid?.() !== 0)
    throw new Error("cannot set the task's name servers: the driver does not run as root on this node");
  if (mount === null || umount === null || unshare === null)
    throw new Error("cannot set the task's name servers: install mount and unshare (util-linux) on this node");
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

/** The programs before a later command, which join the task's mounts. `directory`: the working directory. */
export function inMountsOf(pid: number, directory: string): { readonly flag: string; readonly cd: readonly string[] } {
  // Joining a mount namespace changes the working directory to its root.
  return { flag: `--mount=/proc/${pid}/ns/mnt`, cd: [shell, "-c", 'cd -- "$0" && exec "$@"', directory] };
}
