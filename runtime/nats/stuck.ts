/**
 * When a nats-server of ours is stuck: pure, judged by one look a second.
 *
 * X1: only looks count in which it could have answered. One that is busy (recovering its storage, on a machine that has
 *     no time for it) or that somebody has stopped gets several times as long, and looks that came late themselves do not count:
 *     then this process had no time either.
 * X2: who was started again and is stuck again gets twice as long, so that no loop of restarts is faster than its cause.
 * X3: with not a byte free it would not start: it stays until there is room.
 */

/** Two looks a second apart; one that comes later than this was starved. */
const lateLookMs = 2_000;
/** Ten missed renewals of a lease; a stream leader's election is no matter of a server that is alone. */
const stuckMsMin = 10_000;
const stuckMsMax = 640_000;
/** The same for one that has served nothing yet since its start. */
const startMsMin = 20_000;
/** It has served for this long: what was before is forgotten (X2). */
const servedMsMin = 60_000;
/** Of a look at one that used this much of a core, or that waits for the disk: X1. */
const busyShare = 0.3;
const busyWeight = 0.2;
/** A server that somebody has stopped, with a debugger for instance, is started again after this, should it have been
 *  forgotten: within the minutes that an operator waits, and longer than a look at it takes. In milliseconds. */
export const stoppedMsMax = 60_000;
const stoppedWeight = stuckMsMin / stoppedMsMax;
/** For its own files: X3. */
const startBytesMin = 1024 * 1024;

export type ServerState = "alive" | "waiting" | "stopped";

export interface ServerLook {
  /** Monotonic milliseconds. */
  readonly at: number;
  /** How long what it was asked has been unanswered; 0: it answers. */
  readonly unservedMs: number;
  /** False between its end and its next start. */
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
  /** Whether this process of it has answered yet. */
  readonly hasServed: boolean;
  /** For how long it has answered without a pause. */
  readonly servedMs: number;
  /** Milliseconds of looks that counted, weighed. */
  readonly silentMs: number;
  /** What it may have of them (X2). */
  readonly allowedMs: number;
  /** It has to be started again, now. */
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

export function judge(before: StuckJudgement, look: ServerLook): StuckJudgement {
  const { at, cpuMs } = look;
  const passedMs = before.at === 0 ? 0 : at - before.at;
  const next = { ...before, at, cpuMs, isStuck: false };
  if (!look.isRunning) return { ...next, hasServed: false, servedMs: 0, silentMs: 0 };
  if (look.unservedMs === 0) {
    const servedMs = before.servedMs + passedMs;
    const allowedMs = servedMs >= servedMsMin ? stuckMsMin : before.allowedMs;
    return { ...next, hasServed: true, servedMs, silentMs: 0, allowedMs };
  }
  // X1
  const isBusy = look.state === "waiting" || cpuMs - before.cpuMs >= busyShare * passedMs;
  const weight = passedMs > lateLookMs ? 0 : look.state === "stopped" ? stoppedWeight : isBusy ? busyWeight : 1;
  const silentMs = before.silentMs + passedMs * weight;
  const isOver = silentMs >= (before.hasServed ? before.allowedMs : Math.max(startMsMin, before.allowedMs));
  if (!isOver || look.freeBytes < startBytesMin) return { ...next, servedMs: 0, silentMs };
  const allowedMs = Math.min(stuckMsMax, before.allowedMs * 2);
  return { ...next, hasServed: false, servedMs: 0, silentMs: 0, allowedMs, isStuck: true };
}
