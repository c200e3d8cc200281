/**
 * A task's resource usage: from its cgroup, or without one the sum of its session's processes in /proc.
 *
 * U1: /proc is scanned at most once per `snapshotMs`, however many tasks are sampled.
 */
import { closeSync, openSync, readSync, readdirSync } from "node:fs";
import type { TaskSample } from "../../edges/plugin/server/index.ts";
import { usageOf, type TaskCgroup } from "./cgroups.ts";

/** Less than the second at which hosts ask. */
const snapshotMs = 700;
/** Clock ticks per second in /proc: the same on every Linux that Node supports. */
const ticksPerSecond = 100;
const pageBytes = 4_096;

interface Sum {
  userTicks: number;
  systemTicks: number;
  pages: number;
}

const buffer = Buffer.alloc(1_024);
let sessions: ReadonlyMap<number, Sum> = new Map();
let takenAtMs = Number.NEGATIVE_INFINITY;

function line(pid: string): string {
  try {
    const fd = openSync(`/proc/${pid}/stat`, "r");
    try {
      return buffer.toString("latin1", 0, readSync(fd, buffer, 0, buffer.length, 0));
    } finally {
      closeSync(fd);
    }
  } catch {
    return ""; // it has exited
  }
}

/** U1 */
function snapshot(nowMs: number): ReadonlyMap<number, Sum> {
  if (nowMs - takenAtMs < snapshotMs) return sessions;
  const sums = new Map<number, Sum>();
  for (const entry of readdirSync("/proc")) {
    if (entry.charCodeAt(0) > 57) continue; // not a number
    const text = line(entry);
    // From the state on: the name before it, in parentheses, may contain anything.
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    const session = Number(fields[3]);
    if (!(session > 0)) continue;
    const sum = sums.get(session) ?? { userTicks: 0, systemTicks: 0, pages: 0 };
    sum.userTicks += Number(fields[11]);
    sum.systemTicks += Number(fields[12]);
    sum.pages += Number(fields[21]);
    sums.set(session, sum);
  }
  sessions = sums;
  takenAtMs = nowMs;
  return sums;
}

interface Reading {
  readonly atMs: number;
  readonly userMs: number | undefined;
  readonly totalMs: number;
  readonly rest: Pick<TaskSample, "memoryRss" | "memoryCache" | "memoryUsage" | "memorySwap">;
  readonly throttled: Pick<TaskSample, "throttledPeriods" | "throttledNanoseconds">;
}

/** Removes undefined fields: an absent field was not measured. */
function defined<Of extends object>(fields: { readonly [Name in keyof Of]: Of[Name] | undefined }): Of {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Of;
}

function fromSession(session: number, atMs: number): Reading {
  const sum = snapshot(atMs).get(session) ?? { userTicks: 0, systemTicks: 0, pages: 0 };
  const userMs = (sum.userTicks * 1_000) / ticksPerSecond;
  const bytes = sum.pages * pageBytes;
  return {
    atMs: takenAtMs,
    userMs,
    totalMs: userMs + (sum.systemTicks * 1_000) / ticksPerSecond,
    rest: { memoryRss: bytes, memoryUsage: bytes },
    throttled: {},
  };
}

function fromCgroup(cgroup: TaskCgroup, atMs: number): Reading | null {
  const { cpuNs, userNs, rss, cache, usage, swap, throttledNs, throttledPeriods } = usageOf(cgroup);
  if (cpuNs === undefined || usage === undefined) return null;
  return {
    atMs,
    userMs: userNs === undefined ? undefined : userNs / 1e6,
    totalMs: cpuNs / 1e6,
    rest: defined({ memoryRss: rss, memoryCache: cache, memoryUsage: usage, memorySwap: swap }),
    throttled: defined({ throttledPeriods, throttledNanoseconds: throttledNs }),
  };
}

export class UsageMeter {
  readonly #session: number;
  readonly #cgroup: TaskCgroup | null;
  readonly #coreMhz: number;
  #last: Reading | null = null;

  /** `coreMhz`: of one core; 0: unknown. */
  constructor(session: number, cgroup: TaskCgroup | null, coreMhz: number) {
    this.#session = session;
    this.#cgroup = cgroup;
    this.#coreMhz = coreMhz;
  }

  /** CPU usage is relative to the previous sample; the first sample has none. */
  sample(nowMs: number): TaskSample {
    const found = (this.#cgroup === null ? null : fromCgroup(this.#cgroup, nowMs)) ?? fromSession(this.#session, nowMs);
    const last = this.#last;
    if (last === null || found.atMs > last.atMs) this.#last = found;
    const passedMs = last === null ? 0 : found.atMs - last.atMs;
    if (last === null || passedMs <= 0) return { cpuPercent: 0, ...found.rest, ...found.throttled };
    const percent = (ms: number): number => Math.max(0, (ms / passedMs) * 100);
    const cpuPercent = percent(found.totalMs - last.totalMs);
    const user =
      found.userMs === undefined || last.userMs === undefined ? undefined : percent(found.userMs - last.userMs);
    return {
      cpuPercent,
      ...(user === undefined ? {} : { cpuUserPercent: user, cpuSystemPercent: Math.max(0, cpuPercent - user) }),
      ...(this.#coreMhz > 0 ? { cpuTicks: (cpuPercent / 100) * this.#coreMhz } : {}),
      ...found.rest,
      ...found.throttled,
    };
  }
}
