/** Compares the wall clocks of all living managers with this one's. */
import { CompareClocksResponse, ManagerClock } from "../../proto/gen/messages.ts";
import { clockDifference } from "../../machines/manager/clock-difference.ts";
import { timestampOf } from "../../proto/time.ts";
import type { Environment } from "../environment.ts";
import { sentence } from "../sentence.ts";

/** Asks the manager at `host:port` for its wall clock, in milliseconds. Rejects if it does not answer. */
export type AskClock = (address: string) => Promise<number>;

export async function compareClocks(env: Environment, askClock: AskClock): Promise<CompareClocksResponse> {
  const { clock, managerId, store } = env;
  const others = [...store.all("manager")].filter(({ alive, id }) => alive && id !== managerId);
  const clocks = await Promise.all(
    others.map(async ({ addr, id }) => {
      const askedAtMs = clock.now();
      const begunMs = clock.monotonic();
      try {
        const theirsMs = await askClock(addr);
        const { aheadMs, errorMs } = clockDifference({ askedAtMs, tookMs: clock.monotonic() - begunMs, theirsMs });
        return ManagerClock.create({ managerId: id, aheadMs, errorMs });
      } catch (error) {
        return ManagerClock.create({ managerId: id, failure: sentence(error) });
      }
    }),
  );
  return CompareClocksResponse.create({ clocks, answeredAt: timestampOf(clock.now()) });
}
