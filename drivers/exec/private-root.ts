/**
 * A private filesystem: a root in memory with the node's programs, read-only, and the task's directories and volumes at their
 * paths on the node, so that every path in the task's environment is valid.
 */
import { lstatSync, readlinkSync, realpathSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { chrootPaths } from "../../linux/task-home/chroot.ts";
import type { SealingPlan } from "./sealing.ts";

const devices = ["null", "zero", "full", "random", "urandom", "tty"];
/** Parts of /proc through which root in the task could change or read the node, as in Nomad's `exec`. */
const readOnlyProc = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"];
const hiddenProc = ["/proc/kcore"];

const flag = { readOnly: 1, noSetuid: 2, noDevices: 4, noPrograms: 8, remount: 32, bind: 4_096, recursive: 16_384 };
const detach = 2;

export interface RootAsked {
  /** A directory over which the root is mounted, in the task's mount namespace. */
  readonly place: string;
  /** Null: Nomad's. */
  readonly paths: readonly string[] | null;
  /** The task's directory; empty: none. */
  readonly home: string;
  /** Directories that the task may write to. */
  readonly own: readonly string[];
  readonly readOnly: readonly string[];
  readonly volumes: readonly { readonly from: string; readonly to: string; readonly isReadOnly: boolean }[];
  readonly hasOwnProcesses: boolean;
}

export function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

export function mountProc(plan: SealingPlan, at: string): void {
  const flags = flag.noSetuid | flag.noDevices | flag.noPrograms;
  plan.call(`mount ${at}`, "mount", "proc", at, "proc", flags, 0);
}

class Builder {
  readonly #plan: SealingPlan;
  readonly #place: string;
  readonly #made = new Set<string>();

  constructor(plan: SealingPlan, place: string) {
    this.#plan = plan;
    this.#place = place;
  }

  folder(path: string): string {
    if (path === "/" || this.#made.has(path)) return this.#place + path;
    this.folder(dirname(path));
    this.#made.add(path);
    this.#plan.folder(this.#place + path);
    return this.#place + path;
  }

  memory(path: string, options: string, flags: number): void {
    const at = this.folder(path);
    this.#plan.call(`mount memory at ${path}`, "mount", "muster", at, "tmpfs", flags, options);
  }

  /** `isWhole`: includes the mounts below `from`. */
  bind(from: string, to: string, flags: number, isWhole = false): void {
    let at: string;
    if (isFolder(from)) at = this.folder(to);
    else {
      at = join(this.folder(dirname(to)), to.slice(to.lastIndexOf("/") + 1));
      this.#plan.file(at);
    }
    this.#plan.call(`show the task ${from}`, "mount", from, at, "", flag.bind | (isWhole ? flag.recursive : 0), 0);
    const limits = flag.bind | flag.remount | flags;
    this.#plan.call(`limit the mount of ${from}`, "mount", "", at, "", limits, 0);
  }

  link(path: string): void {
    this.folder(dirname(path));
    this.#plan.link(readlinkSync(path), this.#place + path);
  }
}

/** The paths visible in a private filesystem. */
export function rootPaths(paths: readonly string[] | null): readonly string[] {
  return (paths ?? chrootPaths).filter((path) => lstatSync(path, { throwIfNoEntry: false }) !== undefined);
}

export function buildRoot(plan: SealingPlan, asked: RootAsked): void {
  const { hasOwnProcesses, home, own, paths, place, readOnly, volumes } = asked;
  const shown = flag.noSetuid | flag.noDevices;
  plan.call("make the task's root", "mount", "muster", place, "tmpfs", shown, "mode=755,size=4m");
  const root = new Builder(plan, place);
  for (const path of rootPaths(paths)) {
    if (lstatSync(path).isSymbolicLink()) root.link(path);
    else root.bind(path, path, shown | flag.readOnly);
  }
  root.memory("/dev", "mode=755,size=64k", flag.noSetuid | flag.noPrograms);
  for (const name of devices) root.bind(`/dev/${name}`, `/dev/${name}`, flag.noSetuid | flag.noPrograms);
  root.folder("/dev/pts");
  const terminals = "newinstance,ptmxmode=0666,mode=0620,gid=5";
  plan.call(
    "mount /dev/pts",
    "mount",
    "devpts",
    `${place}/dev/pts`,
    "devpts",
    flag.noSetuid | flag.noPrograms,
    terminals,
  );
  root.memory("/dev/shm", "mode=1777,size=64m", shown | flag.noPrograms);
  const links = { ptmx: "pts/ptmx", fd: "/proc/self/fd", stdin: "fd/0", stdout: "fd/1", stderr: "fd/2" };
  for (const [name, target] of Object.entries(links)) plan.link(target, `${place}/dev/${name}`);
  if (home === "" || !isFolder(join(home, "tmp"))) root.memory("/tmp", "mode=1777,size=64m", shown);
  else root.bind(join(home, "tmp"), "/tmp", shown);
  for (const path of own) root.bind(path, path, shown, true);
  for (const path of readOnly) root.bind(path, path, shown | flag.readOnly);
  for (const { from, isReadOnly, to } of volumes) root.bind(from, to, shown | (isReadOnly ? flag.readOnly : 0), true);
  root.folder("/proc");
  if (hasOwnProcesses) mountProc(plan, `${place}/proc`);
  else root.bind("/proc", "/proc", shown | flag.noPrograms);
  for (const path of readOnlyProc.filter((each) => lstatSync(each, { throwIfNoEntry: false }) !== undefined)) {
    const at = place + path;
    plan.call(`cover ${path}`, "mount", at, at, "", flag.bind | flag.recursive, 0);
    plan.call(
      `cover ${path}`,
      "mount",
      "",
      at,
      "",
      flag.bind | flag.remount | flag.readOnly | shown | flag.noPrograms,
      0,
    );
  }
  for (const path of hiddenProc.filter((each) => lstatSync(each, { throwIfNoEntry: false }) !== undefined))
    plan.call(`cover ${path}`, "mount", "/dev/null", place + path, "", flag.bind, 0);
  plan.call("close the task's root", "mount", "", place, "", flag.remount | flag.bind | flag.readOnly | shown, 0);
  plan.enter(place);
  plan.call("change the root", "pivot_root", ".", ".");
  plan.call("leave the node's root", "umount2", ".", detach);
  plan.enter("/");
}

/** Targets of links in the task's directory that lead outside of it: its secrets and configs, which are in memory. */
export function linkedFolders(home: string): readonly string[] {
  return ["secrets", "configs"].flatMap((name) => {
    const path = join(home, name);
    if (lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() !== true || !isFolder(path)) return [];
    return [realpathSync(path)];
  });
}
