/** Watches processes in /proc, for plugins that are not children of this process. */
import { readFileSync } from "node:fs";

/**
 * The start time of a process, in the kernel's ticks since boot; together with the pid it identifies a process uniquely. Null
 * if there is no such process, or only a zombie, which cannot answer any more.
 */
export function startTicksOf(pid: number): string | null {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch {
    return null;
  }
  // The name, in parentheses, may contain anything; the state is the first field after it, the start time the 20th.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return fields[0] === "Z" || fields[0] === "X" ? null : (fields[19] ?? null);
}

/** Sends a signal to exactly the process with that start time. False if it has exited. */
export function signalProcess(pid: number, startTicks: string, signal: NodeJS.Signals): boolean {
  if (startTicksOf(pid) !== startTicks) return false;
  try {
    process.kill(pid, signal);
    return true;
  } catch {
    return false;
  }
}
