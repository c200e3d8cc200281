/** Detects that the wall clock of this manager's machine was set (`machines/manager/clock-jump.ts`). */
import { jumpBetween, jumpSentence, jumpShownMs, type ClockReading } from "../../machines/manager/clock-jump.ts";
import { Trouble_Kind } from "../../proto/gen/messages.ts";
import type { Clock, TimerHandle } from "../../runtime/ports/index.ts";
import type { Troubles } from "../../runtime/ports/troubles.ts";
import type { ClockLook, Running } from "../environment.ts";

/** Interval of clock readings, in milliseconds. */
const readingPeriodMs = 1_000;

export interface ClockWatch extends Running, ClockLook {
  /** Calls the listener after each jump, until stopped. */
  onJump(listener: () => void): void;
}

export function startClockWatch(clock: Clock, troubles: Troubles): ClockWatch {
  const listeners: (() => void)[] = [];
  const read = (): ClockReading => ({ wall: clock.now(), monotonic: clock.monotonic() });
  let last = read();
  let shownUntil = 0;
  let timer: TimerHandle | null = null;
  const look = (): void => {
    const reading = read();
    const jumpMs = jumpBetween(last, reading);
    last = reading;
    if (jumpMs !== 0) {
      // The sentence of a second jump replaces the first one.
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
    onJump: (listener) => void listeners.push(listener),
    stop: () => {
      if (timer !== null) clock.clearTimeout(timer);
      timer = null;
    },
  };
}
