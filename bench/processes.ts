/** CPU time and memory of a process, from /proc. */
import { readFileSync, readdirSync } from "node:fs";

/** Clock ticks per second of /proc/<pid>/stat on Linux. */
const ticksPerSecond = 100;

/** User and system time of the processes so far, in seconds. A process that has exited counts as 0. */
export function cpuSeconds(pids: readonly number[]): number {
  let ticks = 0;
  for (const pid of pids) {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
      const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      ticks += Number(fields[11]) + Number(fields[12]);
    } catch {
      // exited
    }
  }
  return ticks / ticksPerSecond;
}

/** `VmRSS` (now) or `VmHWM` (peak) of the processes together, in MiB. */
export function memoryMiB(pids: readonly number[], which: "VmRSS" | "VmHWM"): number {
  let kib = 0;
  for (const pid of pids) {
    try {
      kib += Number(
        new RegExp(`^${which}:\\s+(\\d+) kB`, "m").exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0,
      );
    } catch {
      // exited
    }
  }
  return kib / 1024;
}

/** Memory of the processes together, in MiB: a page that several share counts once. */
export function ownMemoryMiB(pids: readonly number[]): number {
  let kib = 0;
  for (const pid of pids) {
    try {
      kib += Number(/^Pss:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"))?.[1] ?? 0);
    } catch {
      // exited
    }
  }
  return kib / 1024;
}

/** Pids of a process and its direct and indirect children, itself first. */
export function processTree(root: number): number[] {
  const parents = new Map<number, number>();
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "utf8");
      parents.set(Number(name), Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]));
    } catch {
      // exited
    }
  }
  const tree = [root];
  for (const pid of tree) for (const [child, parent] of parents) if (parent === pid) tree.push(child);
  return tree;
}
