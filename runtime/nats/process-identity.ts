/** Distinguishes a process from a later one with the same pid, and terminates a process by pid. */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";

export interface ProcessIdentity {
  readonly pid: number;
  /** Boot id and start time, which a later process with the same pid does not share. */
  readonly stamp: string;
}

const run = promisify(execFile);
const endPollMs = 20;

/** Null if no process has that pid; a zombie does not count. */
export async function identify(pid: number): Promise<ProcessIdentity | null> {
  if (process.platform !== "linux") return identifyByPs(pid);
  try {
    const [stat, boot] = await Promise.all([
      readFile(`/proc/${pid}/stat`, "utf8"),
      readFile("/proc/sys/kernel/random/boot_id", "utf8"),
    ]);
    // The command, in parentheses, may contain anything; the state (field 3) and the start time (field 22) follow it.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" || fields[0] === "X" ? null : { pid, stamp: `${boot.trim()}/${fields[19] ?? ""}` };
  } catch {
    return null;
  }
}

async function identifyByPs(pid: number): Promise<ProcessIdentity | null> {
  try {
    const { stdout } = await run("ps", ["-o", "lstart=", "-p", String(pid)]);
    return { pid, stamp: stdout.trim() };
  } catch {
    return null;
  }
}

export async function isRunning(identity: ProcessIdentity): Promise<boolean> {
  return (await identify(identity.pid))?.stamp === identity.stamp;
}

/** SIGTERM, then SIGKILL if it still runs after the grace period. Resolves when it has exited. */
export async function endProcess(identity: ProcessIdentity, graceMs: number): Promise<void> {
  const deadline = performance.now() + graceMs;
  let signal: NodeJS.Signals = "SIGTERM";
  while (await isRunning(identity)) {
    if (signal === "SIGTERM" || performance.now() >= deadline) {
      kill(identity.pid, signal);
      signal = "SIGKILL";
    }
    await new Promise((resolve) => setTimeout(resolve, endPollMs));
  }
}

/** Signalling a process that has just exited is not an error. */
function kill(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}
