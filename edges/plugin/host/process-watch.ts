/** Processes as /proc tells of them: for plugins that are no children of this process. */
import { readFileSync } from "node:fs";

/**
 * When a process began, in the kernel's ticks since boot: a pid and this together name one process for good. Null when there
 * is none, or only a zombie, which nobody can talk to any more.
 */
export function startTicksOf(pid: number): string | null {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch {
    return null;
  }
  // The name, in parentheses, may hold anything; the state is the first field behind it, the start the 20th.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return fields[0] === "Z" || fields[0] === "X" ? null : (fields[19] ?? null);
}

/** Sends a signal to the very process that began then. False when it is gone. */
export function signalProcess(pid: number, startTicks: string, signal: NodeJS.Signals): boolean {
  if (startTicksOf(pid) !== startTicks) return false;
  try {
    process.kill(pid, signal);
    return true;
  } catch {
    return false;
  }
}
