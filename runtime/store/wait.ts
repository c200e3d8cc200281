/** Promises that wait for a replica or the clock. */
import type { Clock, TimerHandle } from "../ports/index.ts";
import type { Store } from "./store.ts";

export function sleep(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => void clock.setTimeout(resolve, ms));
}

/**
 * Takes one step of long work, and waits for as long as it took: a request that passes through several turns of the event loop, as a
 * write does, meets a step in about half of them.
 */
export async function stepInTurn<Result>(clock: Clock, step: () => Result): Promise<Result> {
  const begun = clock.monotonic();
  const result = step();
  await sleep(clock, clock.monotonic() - begun);
  return result;
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
