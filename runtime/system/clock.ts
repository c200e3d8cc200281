/** The machine's clock behind the `Clock` port. */
import type { Clock, TimerHandle } from "../ports.ts";
import { soon } from "./turns.ts";

export class SystemClock implements Clock {
  now(): number {
    return Date.now();
  }

  setTimeout(callback: () => void, ms: number): TimerHandle {
    return setTimeout(callback, ms) as unknown as TimerHandle;
  }

  clearTimeout(timer: TimerHandle): void {
    clearTimeout(timer as unknown as NodeJS.Timeout);
  }

  soon(callback: () => void): void {
    soon(callback);
  }
}
