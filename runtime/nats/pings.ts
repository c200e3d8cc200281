/** Checks whether the server at the other end of a connection is alive. */
import type { NatsConnection } from "nats";

/** A frozen server goes unnoticed for up to two intervals; one ping a second costs nothing. */
const pingIntervalMs = 1_000;
/** Intervals without a byte from the server, with a ping outstanding, after which the link is suspect, and lost. */
export const silentTicksSuspect = 1;
export const silentTicksLost = 2;

/**
 * Pings once per interval. When a ping is due and the last one is unanswered, reports the number of intervals without a byte.
 * Judged after the event loop has read its sockets, so that a long pause of our own does not count as the server's.
 */
export function startPinging(connection: NatsConnection, report: (silentTicks: number) => void): NodeJS.Timeout {
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
          if (silentTicks > 0) report((silentTicks = 0));
        },
        () => undefined,
      );
      report(silentTicks);
    });
  }, pingIntervalMs);
}
