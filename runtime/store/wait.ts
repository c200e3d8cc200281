/** Promises that wait for a replica or the clock. */
import type { Clock, TimerHandle } from "../ports/index.ts";
import type { Store } from "./store.ts";

export function sleep(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => void clock.setTimeout(resolve, ms));
}

/** True once the replica has applied `version`; false if `timeoutMs` elapse first. */
export function reachesVersion(store: Store, clock: Clock, version: number, timeoutMs: number): Promise<boolean> {
  if (store.version >= version) return Promise.resolve(true);
  if (timeoutMs <= 0) return Promise.resolve(false);
  return new Promise((resolve) => {
    let timer: TimerHandle | null = null;
    const watching = store.watch((commit) => {
      if (commit.version >= version) end(true);
    });
    const end = (reached: boolean): void => {
      watching.unsubscribe();
      if (timer !== null) clock.clearTimeout(timer);
      resolve(reached);
    };
    timer = clock.setTimeout(() => end(false), timeoutMs);
  });
}
