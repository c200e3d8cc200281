/** Waits for the end of a process: Ctrl-C, a supervisor's SIGTERM, or a failure inside. */
import { isatty } from "node:tty";

/**
 * The first signal resolves; a second one ends the process at once, for whoever does not want to wait. SIGHUP of a process
 * without a terminal is for `reopenLog`, as log rotation expects; with one it says that the terminal is gone.
 */
export function untilSignal(reopenLog: (() => void) | null = null): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    let isEnding = false;
    const onSignal = (signal: NodeJS.Signals): void => {
      if (isEnding) process.exit(130);
      isEnding = true;
      resolve(signal);
    };
    const onHangUp = reopenLog !== null && !isatty(0) ? reopenLog : onSignal;
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, onSignal);
    process.on("SIGHUP", onHangUp);
  });
}

/** What a start is given. */
export interface Starting {
  /** To be told of what must never happen. */
  readonly onBroken: (error: unknown) => void;
  /** Aborts at the first signal. A start that has not ended by then undoes what it did, and rejects with Interrupted. */
  readonly ending: AbortSignal;
}

/** What a start rejects with that was told to end before it was done. */
export class Interrupted extends Error {
  override readonly name = "Interrupted";
}

/** Waits for `work` unless `ending` aborts first: then it rejects with Interrupted, and what becomes of `work` is nobody's concern. */
export async function unlessEnding<Result>(work: Promise<Result>, ending: AbortSignal): Promise<Result> {
  const { promise, reject } = Promise.withResolvers<never>();
  const onAbort = (): void => reject(new Interrupted("interrupted"));
  if (ending.aborted) onAbort();
  ending.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([work, promise]);
  } finally {
    ending.removeEventListener("abort", onAbort);
  }
}

/** A promise that somebody else settles. */
export interface Settled<Value> {
  readonly promise: Promise<Value>;
  resolve(value: Value): void;
}

export function settled<Value>(): Settled<Value> {
  const { promise, resolve } = Promise.withResolvers<Value>();
  return { promise, resolve };
}
