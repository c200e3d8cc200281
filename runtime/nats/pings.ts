/** Whether the server at the other end of a connection is still there. */
import type { NatsConnection } from "nats";

/** Two intervals bound how long a frozen server goes unnoticed; one ping a second costs nothing. */
const pingIntervalMs = 1_000;
/** Intervals without a byte from the server, a ping outstanding, after which the link is suspect, and is given up. */
export const silentTicksSuspect = 1;
export const silentTicksLost = 2;

/**
 * Pings once an interval and tells, when one is due and the last is unanswered, for how many intervals not a byte has
 * come. Judged after the event loop has read its sockets, so that a long pause of ours is not taken for the server's.
 */
export function startPinging(connection: NatsConnection, tell: (silentTicks: number) => void): NodeJS.Timeout {
  let outstanding = 0;
  let silentTicks = 0;
  let bytesSeen = connection.stats().inBytes;
  return setInterval(() => {
    setImmediate(() => {
      if (connection.isClosed()) return;
      const bytes = connection.stats().inBytes;
      silentTicks = outstanding > 0 && bytes === bytesSeen ? silentTicks + 1 : 0;
      bytesSeen = bytes;
      outstanding += 1;
      connection.flush().then(
        () => {
          outstanding = 0;
          if (silentTicks > 0) tell((silentTicks = 0));
        },
        () => undefined,
      );
      tell(silentTicks);
    });
  }, pingIntervalMs);
}
