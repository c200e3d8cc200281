/**
 * What agents have left that ran processes without the exec driver's plugin, as they did in Muster's first months: a shell for
 * each task, that leads its session and writes to `<directory>/<task id>/run` who it is. Nobody knows how to go on with those
 * tasks, so they are ended as each of them wants it before the agent looks for its own: the tasks count as lost then, and what
 * their managers start in their place never runs beside them.
 */
import { readFileSync } from "node:fs";
import { readdir, rm, rmdir } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "../../runtime/ports.ts";
import { MemoryFiles } from "./memory-files.ts";
import { isAlive, membersOf, parseStat, signal, type ProcessName } from "./process.ts";

const lookMs = 20;
/** A process that survives SIGKILL for longer hangs in the kernel. */
const killMsMax = 5_000;

function text(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}

/** Null where no shell has written who it is. */
function leaderOf(home: string): ProcessName | null {
  const lines = text(join(home, "run")).split("\n").slice(0, -1);
  const after = (key: string) => lines.find((line) => line.startsWith(`${key} `))?.slice(key.length + 1);
  const facts = parseStat(after("stat") ?? "");
  const bootId = after("boot");
  return facts === null || bootId === undefined ? null : { pid: facts.pid, startTime: facts.startTime, bootId };
}

/** `until`, looked at every now and then; false when it was not within the time. */
async function within(ms: number, until: () => boolean): Promise<boolean> {
  const deadline = Date.now() + ms;
  for (;;) {
    if (until()) return true;
    if (Date.now() >= deadline) return false;
    await new Promise((resolve) => setTimeout(resolve, lookMs));
  }
}

async function end(home: string, leader: ProcessName, log: Logger): Promise<void> {
  const [name = "SIGTERM", graceMs = "0"] = text(join(home, "stop")).trim().split(" ");
  if (isAlive(leader)) {
    log.warn({ pid: leader.pid, home }, "a process that an earlier version of this agent left is ended");
    signal(-leader.pid, name as NodeJS.Signals);
    await within(Number(graceMs), () => !isAlive(leader));
  }
  const isOver = await within(killMsMax, () => {
    const left = membersOf([leader]).get(leader.pid) ?? [];
    for (const pid of left) signal(pid, "SIGKILL");
    return left.length === 0;
  });
  if (!isOver)
    log.error({ pid: leader.pid, home }, "a process that an earlier version of this agent left cannot be killed");
}

/** `directory`: where that agent had its tasks; it is gone afterwards. `memoryRoots`: where their secrets are. */
export async function endLeftovers(directory: string, memoryRoots: readonly string[], log: Logger): Promise<void> {
  const names = await readdir(directory).catch(() => null);
  if (names === null) return;
  await Promise.all(
    names.map(async (name) => {
      const home = join(directory, name);
      const leader = leaderOf(home);
      if (leader !== null) await end(home, leader, log);
      await rm(home, { recursive: true, force: true });
    }),
  );
  await new MemoryFiles({ directory, log, roots: memoryRoots }).sweep(async () => false);
  await rmdir(directory).catch((error: unknown) =>
    log.warn({ error, directory }, "cannot remove an earlier agent's tasks"),
  );
}
