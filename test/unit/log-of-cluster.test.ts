import test from "ava";
import type { Log } from "../../runtime/ports/index.ts";
import { UserError } from "../../lib/user-error.ts";
import { refuseEmptyLog } from "../../processes/log-of-cluster.ts";

/** Has no leader for some time, and then these bounds. */
function silentFor(ms: number, last: number): Log {
  const readyAt = performance.now() + ms;
  const bounds: Log["bounds"] = () => Promise.resolve(performance.now() < readyAt ? null : { first: 1, last });
  return { bounds } as Partial<Log> as Log;
}

test("a manager waits for the log to have a leader, which three servers that start at once elect after a while", async (t) => {
  await t.notThrowsAsync(refuseEmptyLog(silentFor(8_000, 7), "it is empty"));
});

test("an empty log is refused once it has a leader", async (t) => {
  const error = await t.throwsAsync(refuseEmptyLog(silentFor(500, 0), "it is empty"), { instanceOf: UserError });
  t.is(error?.message, "it is empty");
});
