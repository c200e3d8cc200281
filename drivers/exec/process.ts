/**
 * Processes in /proc. A process is identified by its pid, start time and boot, so that a reused pid is never mistaken for the
 * earlier process.
 */
import { readFileSync, readdirSync } from "node:fs";

export interface ProcessName {
  readonly pid: number;
  /** In clock ticks since boot: field 22 of /proc/<pid>/stat. */
  readonly startTime: number;
  readonly bootId: string;
}

interface ProcessFacts {
  readonly pid: number;
  /** One letter; `Z` is a zombie. */
  readonly state: string;
  readonly group: number;
  readonly session: number;
  readonly startTime: number;
}

/** Parses a line of /proc/<pid>/stat; the command's name, in parentheses, may contain spaces and parentheses. */
export function parseStat(line: string): ProcessFacts | null {
  const pid = Number.parseInt(line, 10);
  const fields = line.slice(line.lastIndexOf(")") + 2).split(" ");
  const [state, , group, session] = fields;
  const startTime = Number(fields[19]);
  if (!Number.isInteger(pid) || state === undefined || !Number.isInteger(startTime)) return null;
  return { pid, state, group: Number(group), session: Number(session), startTime };
}

function factsOf(pid: number): ProcessFacts | null {
  try {
    return parseStat(readFileSync(`/proc/${pid}/stat`, "latin1"));
  } catch {
    return null; // it has exited
  }
}

const hasEnded = ({ state }: ProcessFacts): boolean => state === "Z" || state === "X";

let boot: string | null = null;
/** Id of the running system's boot. */
export function bootId(): string {
  return (boot ??= readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim());
}

export function isAlive({ pid, startTime, bootId: bootOf }: ProcessName): boolean {
  const facts = bootOf === bootId() ? factsOf(pid) : null;
  return facts !== null && facts.startTime === startTime && !hasEnded(facts);
}

/** The processes of this machine. */
export interface Processes {
  isAlive(name: ProcessName): boolean;
  /** All pids, including zombies. */
  pids(): ReadonlySet<string>;
}

export const processes: Processes = { isAlive, pids: () => new Set(readdirSync("/proc")) };

/**
 * Live processes in the groups and sessions that these processes lead or led, by the leader's pid. A process older than its
 * leader is not among them: the pid was reused.
 */
export function membersOf(leaders: readonly ProcessName[]): ReadonlyMap<number, readonly number[]> {
  const current = new Map(leaders.filter((leader) => leader.bootId === bootId()).map((leader) => [leader.pid, leader]));
  const members = new Map<number, number[]>();
  if (current.size === 0) return members;
  const strangers = new Set<number>();
  for (const entry of readdirSync("/proc")) {
    const pid = Number(entry);
    const facts = Number.isInteger(pid) ? factsOf(pid) : null;
    if (facts === null || hasEnded(facts)) continue;
    const leader = current.get(facts.session) ?? current.get(facts.group);
    if (leader === undefined) continue;
    // The pid has been reused since: the group belongs to another process.
    if (pid === leader.pid && facts.startTime !== leader.startTime) strangers.add(pid);
    if (facts.startTime < leader.startTime) continue;
    const found = members.get(leader.pid);
    if (found === undefined) members.set(leader.pid, [pid]);
    else found.push(pid);
  }
  for (const pid of strangers) members.delete(pid);
  return members;
}

/** Signals a process, or a group if `pid` is negative; ignores one that has exited. */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}
