/**
 * The W3C trace context of the work under way in this turn of the event loop, for those who watch actors. It ends with the call:
 * what continues later sets it again. Nothing is decided by it, and spans do not use it.
 */
let current = "";

/** Empty if the work is not traced. */
export const currentTraceparent = (): string => current;

/** Calls `act` with `traceparent` as the current trace context; with the one at present if it is empty. */
export function inTrace<Result>(traceparent: string, act: () => Result): Result {
  if (traceparent === "" || traceparent === current) return act();
  const before = current;
  current = traceparent;
  try {
    return act();
  } finally {
    current = before;
  }
}
