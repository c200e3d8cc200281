/**
 * Decides when our own nats-server is stuck: pure, from one check per second.
 *
 * X1: only checks in which the server could have answered count. A server that is busy (recovering its storage, on a starved
 *     machine) or stopped by somebody gets several times as long, and checks that were late themselves do not count: this
 *     process was starved then, too.
 * X2: a server that is stuck again after a restart gets twice as long, so that a restart loop is never faster than its cause.
 * X3: without any free space it would not start: it stays until there is space.
 */

/** Checks are a second apart; one that is later than this was starved. */
const lateCheckMs = 2_000;
/** Ten missed lease renewals; a standalone server has no stream leader elections to wait for. */
const stuckMsMin = 10_000;
const stuckMsMax = 640_000;
/** The same for a server that has not served anything since its start. */
const startMsMin = 20_000;
/** After serving for this long, earlier restarts no longer count (X2). */
const servedMsMin = 60_000;
/** Share of a core: a server that used this much since the last check, or waits for the disk, is busy (X1). */
const busyShare = 0.3;
const busyWeight = 0.2;
/**
 * A server that somebody has stopped, such as with a debugger, is restarted after this many milliseconds, in case they forgot:
 * within the minutes that an operator waits, and longer than a look with a debugger takes.
 */
export const stoppedMsMax = 60_000;
const stoppedWeight = stuckMsMin / stoppedMsMax;
/** For its own files (X3). */
const startBytesMin = 1024 * 1024;

export type ServerState = "alive" | "waiting" | "stopped";

export interface ServerCheck {
  /** Monotonic milliseconds. */
  readonly at: number;
  /** How long requests have been unanswered; 0: the server answers. */
  readonly unservedMs: number;
  /** False between its exit and its next start. */
  readonly isRunning: boolean;
  /** `waiting`: for the disk; `stopped`: by a signal or a debugger. */
  readonly state: ServerState;
  /** CPU time of the process, in milliseconds. */
  readonly cpuMs: number;
  readonly freeBytes: number;
}

export interface StuckJudgement {
  readonly at: number;
  readonly cpuMs: number;
  /** Whether this process of the server has answered yet. */
  readonly hasServed: boolean;
  /** How long it has answered without interruption. */
  readonly servedMs: number;
  /** Weighted milliseconds of the checks that counted. */
  readonly silentMs: number;
  /** Limit of `silentMs` (X2). */
  readonly allowedMs: number;
  /** It must be restarted now. */
  readonly isStuck: boolean;
}

export const notJudged: StuckJudgement = {
  at: 0,
  cpuMs: 0,
  hasServed: false,
  servedMs: 0,
  silentMs: 0,
  allowedMs: stuckMsMin,
  isStuck: false,
};

export function judge(before: StuckJudgement, check: ServerCheck): StuckJudgement {
  const { at, cpuMs } = check;
  const passedMs = before.at === 0 ? 0 : at - before.at;
  const next = { ...before, at, cpuMs, isStuck: false };
  if (!check.isRunning) return { ...next, hasServed: false, servedMs: 0, silentMs: 0 };
  if (check.unservedMs === 0) {
    const servedMs = before.servedMs + passedMs;
    const allowedMs = servedMs >= servedMsMin ? stuckMsMin : before.allowedMs;
    return { ...next, hasServed: true, servedMs, silentMs: 0, allowedMs };
  }
  // X1
  const isBusy = check.state === "waiting" || cpuMs - before.cpuMs >= busyShare * passedMs;
  const weight = passedMs > lateCheckMs ? 0 : check.state === "stopped" ? stoppedWeight : isBusy ? busyWeight : 1;
  const silentMs = before.silentMs + passedMs * weight;
  const isOver = silentMs >= (before.hasServed ? before.allowedMs : Math.max(startMsMin, before.allowedMs));
  if (!isOver || check.freeBytes < startBytesMin) return { ...next, servedMs: 0, silentMs };
  const allowedMs = Math.min(stuckMsMax, before.allowedMs * 2);
  return { ...next, hasServed: false, servedMs: 0, silentMs: 0, allowedMs, isStuck: true };
}
