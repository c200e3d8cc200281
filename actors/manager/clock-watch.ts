/** Notices that somebody set the wall clock of this manager's machine (`machines/manager/clock-jump.ts`). */
import {
  jumpBetween,
  jumpSentence,
  jumpShownMs,
  type ClockReading,
  type ClockSet,
} from "../../machines/manager/clock-jump.ts";
import { Trouble_Kind } from "../../proto/gen/messages.ts";
import type { Clock, TimerHandle } from "../../runtime/ports.ts";
import type { Troubles } from "../../runtime/troubles.ts";
import type { ClockSets, Running } from "../environment.ts";

/** Between two readings, in milliseconds. */
const readingPeriodMs = 1_000;

export interface ClockWatch extends Running, ClockSets {
  /** Calls the listener after each jump, for as long as this manager runs. */
  onJump(listener: () => void): void;
}

/** Settings of the clock that are remembered: a rollout during which it was set more often is reckoned as if some had not been. */
const setsMax = 64;

export function startClockWatch(clock: Clock, troubles: Troubles): ClockWatch {
  const listeners: (() => void)[] = [];
  const read = (): ClockReading => ({ wall: clock.now(), monotonic: clock.monotonic() });
  let last = read();
  let shownUntil = 0;
  let timer: TimerHandle | null = null;
  const sets: ClockSet[] = [];
  const look = (): void => {
    const reading = read();
    const jumpMs = jumpBetween(last, reading);
    last = reading;
    if (jumpMs !== 0) {
      sets.push({ atMs: reading.wall, byMs: jumpMs });
      if (sets.length > setsMax) sets.shift();
      // The sentence of a second jump takes the place of the first one's.
      const sentence = jumpSentence(jumpMs, reading.wall);
      troubles.raise({ kind: Trouble_Kind.CLOCK_JUMPED, sentence, blocking: false });
      shownUntil = reading.monotonic + jumpShownMs;
      for (const listener of listeners) listener();
    } else if (reading.monotonic >= shownUntil) troubles.clear(Trouble_Kind.CLOCK_JUMPED);
  };
  const lookRegularly = (): void => {
    look();
    timer = clock.setTimeout(lookRegularly, readingPeriodMs);
  };
  timer = clock.setTimeout(lookRegularly, readingPeriodMs);
  return {
    look,
    sets: () => sets,
    onJump: (listener) => void listeners.push(listener),
    stop: () => {
      if (timer !== null) clock.clearTimeout(timer);
      timer = null;
    },
  };
}
