/** Waits for the end of a process: Ctrl-C, a supervisor's SIGTERM, or a failure inside. */

/** The first signal resolves; a second one ends the process at once, for whoever does not want to wait. */
export function untilSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    let isEnding = false;
    const onSignal = (signal: NodeJS.Signals): void => {
      if (isEnding) process.exit(130);
      isEnding = true;
      resolve(signal);
    };
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, onSignal);
  });
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
