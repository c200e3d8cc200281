/** Waits for a process to be stopped: Ctrl-C, a supervisor's SIGTERM, or an internal failure. */
import { isatty } from "node:tty";

/**
 * Resolves with the first signal; a second one exits at once. Without a terminal, SIGHUP calls `reload`, as service managers
 * and log rotation expect; with a terminal, it means that the terminal has closed.
 */
export function untilSignal(reload: (() => void) | null = null): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    let isEnding = false;
    const onSignal = (signal: NodeJS.Signals): void => {
      if (isEnding) process.exit(130);
      isEnding = true;
      resolve(signal);
    };
    const onHangUp = reload !== null && !isatty(0) ? reload : onSignal;
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, onSignal);
    process.on("SIGHUP", onHangUp);
  });
}

/** Context of a start. */
export interface Starting {
  /** Receives the error of a broken invariant. */
  readonly onBroken: (error: unknown) => void;
  /** Aborts at the first signal. A start in progress then undoes its effects and rejects with Interrupted. */
  readonly ending: AbortSignal;
}

/** Rejection of a start that was interrupted. */
export class Interrupted extends Error {
  override readonly name = "Interrupted";
}

/** Waits for `work` unless `ending` aborts first: then it rejects with Interrupted and abandons `work`. */
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

/** A promise settled from outside. */
interface Settled<Value> {
  readonly promise: Promise<Value>;
  resolve(value: Value): void;
}

export function settled<Value>(): Settled<Value> {
  const { promise, resolve } = Promise.withResolvers<Value>();
  return { promise, resolve };
}
